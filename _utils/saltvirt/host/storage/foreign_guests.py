"""Guests of this machine that are not visible on the connection.

These are guests of libvirt's other drivers and of users' session daemons (``qemu:///session``),
read from libvirt's definition files. A user's definition counts only for files that the user may
open, and so does a definition that cannot be read: a user must not prevent the deletion of files
that the user could not open.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit
from xml.etree import ElementTree

from saltvirt.host.domain.names_on_disk import DRIVERS
from saltvirt.system import bounded_io

# libvirt's own folders: definitions, status files, snapshots and checkpoints
SYSTEM = ("/etc/libvirt", "/run/libvirt")
LIBRARY = "/var/lib/libvirt"
_FOLDERS = ("qemu", "lxc", "libxl", "ch", "bhyve")
PASSWD, HOMES, RUNTIME = "/etc/passwd", "/home", "/run/user"
_SUBFOLDERS = ("snapshot", "checkpoint")
_MAX_FILE_BYTES = 4 * 1024 * 1024
# limits per user or driver: names in folders, and bytes of definitions
_MAX_NAMES = 5000
_MAX_BYTES = 32 * 1024 * 1024
# limit per user: files that the guests refer to, with their backing files
MAX_FILES = 10_000


@dataclass(frozen=True)
class ForeignDefinition:
    """A definition of a foreign guest.

    tree: the parsed XML. guest_label: describes the guest. uid: the user who runs the session
    daemon, or None for the system daemon.
    """

    tree: ElementTree.Element
    guest_label: str
    uid: int | None = None


@dataclass(frozen=True)
class UnreadableForeign:
    """A definition that could not be read.

    uid: as in ForeignDefinition.
    """

    text: str
    uid: int | None = None


def read(uri: str) -> Iterator[ForeignDefinition | UnreadableForeign]:
    """Yield the ForeignDefinitions, and an UnreadableForeign for each one that cannot be read.

    uri: URI of the connection, whose own driver is skipped.
    """
    parts = urlsplit(uri)
    own_driver = (
        DRIVERS.get(parts.scheme.partition("+")[0]) if parts.path in ("/system", "/") else None
    )
    for driver in _FOLDERS:
        if driver != own_driver:
            folders = [*(os.path.join(root, driver) for root in SYSTEM)]
            yield from _domains(folders, os.path.join(LIBRARY, driver), f"{driver}:///system", None)
    for uid, user, home, runtime in _users():
        config = os.path.join(home, ".config/libvirt/qemu")
        folders = [config, os.path.join(runtime, "libvirt/qemu/run")]
        yield from _domains(folders, config, f"qemu:///session of {user}", uid)


def _domains(
    folders: list[str], state_dir: str, uri: str, uid: int | None
) -> Iterator[ForeignDefinition | UnreadableForeign]:
    """Yield the definitions in the folders and in the subfolders of ``state_dir``."""
    try:
        paths = list(_files(folders, state_dir))
    except OSError as exc:
        reason = f"more than {_MAX_NAMES} names" if exc.errno == errno.E2BIG else exc.strerror
        yield UnreadableForeign(f"cannot list the guests of {uri}: {exc.filename}: {reason}", uid)
        return
    remaining_bytes = _MAX_BYTES
    for path in paths:
        text = _text(path, uri, uid)
        if isinstance(text, bytes):
            remaining_bytes -= len(text)
            if remaining_bytes < 0:
                reason = f"more than {_MAX_BYTES} bytes in {state_dir} and its related folders"
                yield UnreadableForeign(f"cannot list the guests of {uri}: {reason}", uid)
                return
            parsed = _definition(text, path, uri, uid)
        else:
            parsed = text
        if parsed:
            yield parsed


def _files(folders: list[str], state_dir: str) -> Iterator[str]:
    """Yield the paths of definitions. Raises OSError, also if there are too many names."""
    remaining = _MAX_NAMES
    for folder in folders:
        listed_paths = _listed(folder, remaining)
        remaining -= len(listed_paths)
        yield from (path for path in listed_paths if path.endswith(".xml"))
    for subfolder in _SUBFOLDERS:
        guests = _listed(os.path.join(state_dir, subfolder), remaining)
        remaining -= len(guests)
        for guest in guests:
            listed_paths = _listed(guest, remaining)
            remaining -= len(listed_paths)
            yield from (path for path in listed_paths if path.endswith(".xml"))


def _listed(folder: str, max_entries: int | None = None) -> list[str]:
    """Return the paths in a folder; none if it is not a folder. Raises OSError, also for too
    many."""
    try:
        return [os.path.join(folder, name) for name in bounded_io.names(folder, max_entries)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, folder) from exc


def _text(path: str, uri: str, uid: int | None) -> bytes | UnreadableForeign | None:
    """Return the content of a file, an UnreadableForeign, or None if the file no longer exists."""
    try:
        text = bounded_io.head(path, _MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as exc:
        return UnreadableForeign(f"cannot read {path}, a guest of {uri}: {exc.strerror}", uid)
    if text is None or len(text) > _MAX_FILE_BYTES:
        reason = "no file" if text is None else f"it is longer than {_MAX_FILE_BYTES} bytes"
        return UnreadableForeign(f"cannot read {path}, a guest of {uri}: {reason}", uid)
    return text


def _definition(
    text: bytes, path: str, uri: str, uid: int | None
) -> ForeignDefinition | UnreadableForeign | None:
    """Return the ForeignDefinition in a file, an UnreadableForeign, or None for other XML."""
    try:
        if b"<!" in text.replace(b"<!--", b""):
            raise ValueError("not written by libvirt")
        tree = ElementTree.fromstring(text)
    except (ValueError, ElementTree.ParseError) as exc:
        return UnreadableForeign(f"cannot read {path}, a guest of {uri}: {exc}", uid)
    domain_tree = tree.find("domain") if tree.tag == "domstatus" else tree
    if domain_tree is None or domain_tree.tag not in (
        "domain",
        "domainsnapshot",
        "domaincheckpoint",
    ):
        return None
    name = (
        domain_tree.findtext("domain/name")
        or domain_tree.findtext("name")
        or os.path.basename(path)
    )
    return ForeignDefinition(domain_tree, f"{name} ({uri})", uid)


def _users() -> Iterator[tuple[int, str, str, str]]:
    """Yield (uid, name, home, runtime folder) of each user who may run a session daemon.

    Users that only a directory service knows are found through their folder in /home or /run/user.
    """
    names_by_home: dict[tuple[int, str], str] = {}
    try:
        with open(PASSWD, encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.rstrip("\n").split(":") for line in file]
    except OSError:
        rows = []
    for row in rows:
        if len(row) >= 6 and row[2].isdigit() and row[5].startswith("/"):
            names_by_home.setdefault((int(row[2]), os.path.normpath(row[5])), row[0])
    homes = {home for _, home in names_by_home}
    for home in _user_folders(HOMES, names_by_home):
        if home not in homes:
            try:
                names_by_home[bounded_io.stat(home).st_uid, home] = os.path.basename(home)
            except OSError:
                names_by_home[-1, home] = os.path.basename(home)
    known_uids = {uid for uid, _ in names_by_home}
    for folder in _user_folders(RUNTIME, names_by_home):
        name = os.path.basename(folder)
        if name.isdigit() and int(name) not in known_uids:
            names_by_home[int(name), "/nonexistent"] = f"user {name}"
    for (uid, home), name in names_by_home.items():
        yield uid, name, home, os.path.join(RUNTIME, str(uid))


def _user_folders(folder: str, names_by_home: dict[tuple[int, str], str]) -> list[str]:
    """Return the paths in a folder of users. If it cannot be read, add an entry for an unknown
    user."""
    try:
        return _listed(folder)
    except OSError:
        names_by_home[-1, folder] = f"an unknown user with a folder in {folder}"
        return []


def may_open(uid: int, path: str) -> bool:
    """Return whether a user may read a path according to its mode bits; True if that is unknown.

    Access lists are reflected in the group bits.
    """
    if uid in (0, -1):
        return True
    try:
        status = bounded_io.stat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return status.st_uid == uid or bool(status.st_mode & 0o044)
