"""Guests of this machine that the connection does not show: of libvirt's other drivers, and of
users' own libvirts (``qemu:///session``), by the definitions that libvirt keeps in files.

What a user's definition says counts for what that user may open, and so does that it cannot be
read: nobody keeps a file from being deleted that he could not use.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit
from xml.etree import ElementTree

from saltvirt.host.domain.names_on_disk import DRIVERS
from saltvirt.host.storage import bounded

# of libvirt itself: what is defined, what runs, snapshots and checkpoints
SYSTEM = ("/etc/libvirt", "/run/libvirt")
LIBRARY = "/var/lib/libvirt"
_FOLDERS = ("qemu", "lxc", "libxl", "ch", "bhyve")
PASSWD, HOMES, RUNTIME = "/etc/passwd", "/home", "/run/user"
_BELOW = ("snapshot", "checkpoint")
_LONGEST = 4 * 1024 * 1024
# of one user, or of one driver: names in folders, and bytes of definitions
_MOST = 5000
_MOST_BYTES = 32 * 1024 * 1024
# of one user: the files that his guests name and all that those are based on
MOST_FILES = 10_000


@dataclass(frozen=True)
class Definition:
    """tree: parsed. who: the guest, in words. uid: of the user whose libvirt has it; None for the
    system's own."""

    tree: ElementTree.Element
    who: str
    uid: int | None = None


@dataclass(frozen=True)
class Doubt:
    """What could not be read. uid: as above."""

    text: str
    uid: int | None = None


def read(uri: str) -> Iterator[Definition | Doubt]:
    """Yields the Definitions, and a Doubt for each thing that cannot be read.

    uri: of the connection, whose own driver is not read.
    """
    parts = urlsplit(uri)
    mine = DRIVERS.get(parts.scheme.partition("+")[0]) if parts.path in ("/system", "/") else None
    for driver in _FOLDERS:
        if driver != mine:
            folders = [*(os.path.join(one, driver) for one in SYSTEM)]
            yield from _domains(folders, os.path.join(LIBRARY, driver), f"{driver}:///system", None)
    for uid, user, home, runtime in _users():
        config = os.path.join(home, ".config/libvirt/qemu")
        folders = [config, os.path.join(runtime, "libvirt/qemu/run")]
        yield from _domains(folders, config, f"qemu:///session of {user}", uid)


def _domains(
    folders: list[str], kept: str, uri: str, uid: int | None
) -> Iterator[Definition | Doubt]:
    """What is in the folders, and what libvirt keeps below ``kept`` of each guest."""
    try:
        paths = list(_files(folders, kept))
    except OSError as exc:
        why = f"more than {_MOST} names" if exc.errno == errno.E2BIG else exc.strerror
        yield Doubt(f"the guests of {uri} are not known: {exc.filename}: {why}", uid)
        return
    left = _MOST_BYTES
    for path in paths:
        text = _text(path, uri, uid)
        if isinstance(text, bytes):
            left -= len(text)
            if left < 0:
                why = f"more than {_MOST_BYTES} bytes in {kept} and beside it"
                yield Doubt(f"the guests of {uri} are not known: {why}", uid)
                return
            found = _definition(text, path, uri, uid)
        else:
            found = text
        if found:
            yield found


def _files(folders: list[str], kept: str) -> Iterator[str]:
    """The paths of definitions. Raises OSError, also for more names than anybody has."""
    left = _MOST
    for folder in folders:
        found = _listed(folder, left)
        left -= len(found)
        yield from (path for path in found if path.endswith(".xml"))
    for more in _BELOW:
        guests = _listed(os.path.join(kept, more), left)
        left -= len(guests)
        for guest in guests:
            found = _listed(guest, left)
            left -= len(found)
            yield from (path for path in found if path.endswith(".xml"))


def _listed(folder: str, most: int | None = None) -> list[str]:
    """The paths in a folder; none of what is no folder. Raises OSError, also for more than that."""
    try:
        return [os.path.join(folder, name) for name in bounded.names(folder, most)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, folder) from exc


def _text(path: str, uri: str, uid: int | None) -> bytes | Doubt | None:
    """The bytes of a file, or the Doubt that it leaves; None when it is gone by now."""
    try:
        text = bounded.head(path, _LONGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as exc:
        return Doubt(f"{path}, a guest of {uri}, cannot be read: {exc.strerror}", uid)
    if text is None or len(text) > _LONGEST:
        why = "no file" if text is None else f"it is longer than {_LONGEST} bytes"
        return Doubt(f"{path}, a guest of {uri}, cannot be read: {why}", uid)
    return text


def _definition(text: bytes, path: str, uri: str, uid: int | None) -> Definition | Doubt | None:
    """The Definition in a file's text, or the Doubt that it leaves; None of what is none."""
    try:
        if b"<!" in text.replace(b"<!--", b""):
            raise ValueError("not by libvirt")
        tree = ElementTree.fromstring(text)
    except (ValueError, ElementTree.ParseError) as exc:
        return Doubt(f"{path}, a guest of {uri}, cannot be read: {exc}", uid)
    found = tree.find("domain") if tree.tag == "domstatus" else tree
    if found is None or found.tag not in ("domain", "domainsnapshot", "domaincheckpoint"):
        return None
    name = found.findtext("domain/name") or found.findtext("name") or os.path.basename(path)
    return Definition(found, f"{name} ({uri})", uid)


def _users() -> Iterator[tuple[int, str, str, str]]:
    """(uid, name, home, folder of what runs) of each user that may have a libvirt of his own.

    Of users that only a directory service knows, those with a home in /home or who are at work.
    """
    found: dict[tuple[int, str], str] = {}
    try:
        with open(PASSWD, encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.rstrip("\n").split(":") for line in file]
    except OSError:
        rows = []
    for row in rows:
        if len(row) >= 6 and row[2].isdigit() and row[5].startswith("/"):
            found.setdefault((int(row[2]), os.path.normpath(row[5])), row[0])
    known = {home for _, home in found}
    for home in _below(HOMES, found):
        if home not in known:
            try:
                found[bounded.stat(home).st_uid, home] = os.path.basename(home)
            except OSError:
                found[-1, home] = os.path.basename(home)
    at_work = {uid for uid, _ in found}
    for folder in _below(RUNTIME, found):
        name = os.path.basename(folder)
        if name.isdigit() and int(name) not in at_work:
            found[int(name), "/nonexistent"] = f"user {name}"
    for (uid, home), name in found.items():
        yield uid, name, home, os.path.join(RUNTIME, str(uid))


def _below(folder: str, found: dict[tuple[int, str], str]) -> list[str]:
    """The paths in a folder of users'. Where they are not known they are somebody's whom nobody
    knows."""
    try:
        return _listed(folder)
    except OSError:
        found[-1, folder] = f"whoever has a folder in {folder}"
        return []


def may_open(uid: int, path: str) -> bool:
    """Whether a user may read what is at a path, as far as its own permissions say (what a list of
    its own gives shows in those of the group); True where that cannot be told."""
    if uid in (0, -1):
        return True
    try:
        seen = bounded.stat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return seen.st_uid == uid or bool(seen.st_mode & 0o044)
