"""What a migration has begun on this host, written down before it is done.

A process that is killed leaves its journal; whoever comes next ends what it began.
"""

import contextlib
import fcntl
import json
import os

from saltvirt import errors

FOLDER = "/var/lib/salt-virt/migrations"
# how far it got. BEGUN: the guest can be nowhere but here, whatever the target holds for it.
# MOVING: it may be on either host. MOVED: both hosts have confirmed that it is on the target
BEGUN, MOVING, MOVED = "begun", "moving", "moved"
# that policy=pause is about to pause the guest here; that it has
PAUSING, PAUSED = "pausing", "paused"


class Journal:
    """The journal of one guest, held by one process at a time.

    folder: where the journals are; name: the guest's. Use as a context manager: raises
    OperationFailed when another process is migrating this guest.
    """

    def __init__(self, folder, name):
        self.path = os.path.join(folder, f"{name}.json")
        self.name = name
        self._lock = None

    def __enter__(self):
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        while self._lock is None:
            self._lock = self._take()
        self._forget("abort")
        return self

    def _take(self):
        """The locked file, or None when its last holder has just removed it."""
        handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(f"{self.path}.lock").st_ino == os.fstat(handle).st_ino:
                return handle
        except BlockingIOError as exc:
            os.close(handle)
            raise errors.OperationFailed(
                f"another migration of {self.name} is at work here: wait for it, "
                "or end it with virt.migrate_abort"
            ) from exc
        except FileNotFoundError:
            pass
        os.close(handle)
        return None

    def __exit__(self, *exc_info):
        self._forget("abort")
        os.unlink(f"{self.path}.lock")
        os.close(self._lock)
        self._lock = None
        return False

    def read(self):
        """What is written, as a dict, or None."""
        return read(self.path)

    def write(self, **entry):
        """Replaces the journal, on the disk before this returns."""
        put(self.path, **entry)

    def is_to_end(self):
        """Whether virt.migrate_abort has asked for it."""
        return os.path.exists(f"{self.path}.abort")

    def ask_to_end(self):
        """Tells the process that holds the journal."""
        os.close(os.open(f"{self.path}.abort", os.O_WRONLY | os.O_CREAT, 0o600))

    def close(self):
        """The migration is over, well or undone: nothing is left to do."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self._forget("new")

    def _forget(self, what):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}.{what}")


def put(path, **entry):
    """Replaces a file of JSON, on the disk before this returns. Raises OperationFailed."""
    try:
        _put(path, json.dumps(entry, indent=1))
    except OSError as exc:
        raise errors.OperationFailed(f"cannot write {path}: {exc.strerror}") from exc


def _put(path, text):
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path):
    """The entry of a journal file, or None when there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def names(folder=FOLDER):
    """The guests that have a journal here, sorted."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(f.removesuffix(".json") for f in os.listdir(folder) if f.endswith(".json"))
    return []


def may_start(dom, folder=FOLDER):
    """Raises OperationFailed for a guest that may be on another host, too: its migration there
    was broken off when both could have it."""
    entry = read(os.path.join(folder, f"{dom.name()}.json"))
    if not entry or entry.get("over") or entry["report"]["uuid"] != dom.UUIDString():
        return
    if entry.get("phase") == MOVING:
        raise errors.OperationFailed(
            f"{dom.name()} may be on the target of a migration that was broken off, "
            f"{entry['target']}: salt-run virt.migrate_recover {dom.name()} finds out, first"
        )


def at_work(journal):
    """Whether a process holds the journal."""
    try:
        with journal:
            return False
    except errors.OperationFailed:
        return True


def unfinished(folder=FOLDER):
    """{name: {"target": URI, "at_work": bool}} of the migrations that have a journal."""
    found = {}
    for name in names(folder):
        journal = Journal(folder, name)
        entry = journal.read()
        if entry:
            found[name] = {"target": entry["target"], "at_work": at_work(journal)}
    return found
