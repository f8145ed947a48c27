"""The machine that the tests run on keeps nothing of what the library keeps on a hypervisor.

``apart`` gives the library folders of this process's own, before anything of it is imported that
knows them. ``Watch`` names what this process writes to the machine's own all the same; processes
that it starts are seen by ``made`` alone.
"""

import contextlib
import gc
import importlib.util
import os
import shutil
import sys
import tempfile

STATE, LOCKS = "/var/lib/salt-virt", "/run/salt-virt-locks"
# of tests.lab, not of the library
LABS = {"bare", "labs"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# audit event to which of its arguments are paths that it changes: what a link names is none
_CHANGES = {
    "os.chmod": slice(1), "os.chown": slice(1), "os.link": slice(1, 2), "os.mkdir": slice(1),
    "os.remove": slice(1), "os.rename": slice(2), "os.rmdir": slice(1), "os.symlink": slice(1, 2),
    "os.truncate": slice(1),
}  # fmt: skip


def apart():
    """A callable that removes the folders again; None where the library cannot be imported."""
    if not importlib.util.find_spec("saltvirt"):
        return None
    folder = tempfile.mkdtemp(prefix="salt-virt-kept-")
    keep_in(folder)
    return lambda: shutil.rmtree(folder, ignore_errors=True)


def keep_in(folder):
    """Have the library keep in this folder what it keeps on a hypervisor."""
    knowing = {"saltvirt.host", "saltvirt.hostnet", "saltvirt.images"} & set(sys.modules)
    assert not knowing, f"{knowing} are imported already and know the machine's own folders"
    from saltvirt.system import paths

    paths.STATE, paths.LOCKS = f"{folder}/state", f"{folder}/locks"


def made():
    """The names of what the library keeps in the machine's own folder."""
    with contextlib.suppress(FileNotFoundError):
        return set(os.listdir(STATE)) - LABS
    return set()


def _kept(path):
    """Is it a path that only a hypervisor writes to?"""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str):
        return False
    inside = path.startswith((f"{STATE}/", f"{LOCKS}/", "/etc/")) or path in (STATE, LOCKS)
    return inside and not path.startswith(tuple(f"{STATE}/{name}" for name in LABS))


def open_files():
    """How many files this process has open. What was left for the garbage collection is closed
    before: else it would be closed at some time."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


class Watch:
    """What this process writes there, for a ``with`` block: ``written`` is a list of paths."""

    def __init__(self):
        self.on, self.written = False, []
        sys.addaudithook(self._observe)  # for good: Python takes none away

    def _observe(self, event, arguments):
        if not self.on:
            return
        if event == "open":
            path, _, flags = arguments
            paths = [path] if isinstance(flags, int) and flags & _WRITES else []
        else:
            paths = arguments[_CHANGES.get(event, slice(0))]
        self.written += filter(_kept, paths)

    def __enter__(self):
        self.on, self.written = True, []
        return self

    def __exit__(self, *_):
        self.on = False
