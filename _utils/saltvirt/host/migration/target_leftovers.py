"""What a migration that was undone has made on its target: the target itself takes it away.

The source cannot look there who has a file open, keep a QEMU from opening one, or tell whether
other hosts have it, too. So it leaves a note there, through the target's libvirt: the files that
it made, and how they looked when it let go of them. The target's own minion deletes those that
still look so and that nobody uses, see ``virt.migrate_clean``; ``salt-run`` asks the other hosts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import errors, places
from saltvirt.host import own_files
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup, purge
from saltvirt.host.migration import move_journal, remote_storage, reservations
from saltvirt.host.storage import bounded, deletion, identity, usage
from saltvirt.migration import storage
from saltvirt.migration.journal import LeavingsNote, MadeThere

log = logging.getLogger(__name__)

FOLDER = f"{places.STATE}/target_leftovers"
# beside it: their earlier place, which hosts not yet updated still write to, on this host too
_EARLIER = "leavings"
NEWER = "which was written to since it was copied there, may be the newer"
# no migration makes so many files
_LONGEST = 2**20
# digits that tell notes on one guest apart
_DIGITS = 16


def hand_over(peer: libvirt.virConnect, made: MadeThere) -> dict[str, str]:
    """Writes down on the target what was made there; {path: why it is still there}.

    The migration must be undone: nobody of ours needs the files any more. What is there already
    when it is called again is not written twice. Raises VirtError, and must then be called again.
    """
    newer, making = written_since(peer, made), made.making
    paths = [path for path in made.created if not reservations.is_reservation(path)]
    looks = {path: remote_storage.look(peer, path) for path in paths if path not in newer}
    kept = dict.fromkeys(newer, f"{NEWER}: look at it; remove it, or move it away")
    if making:
        looks[making.path], why = remote_storage.claimed(peer, making)
        kept |= {making.path: why} if why else {}
    files = {path: look for path, look in looks.items() if look is not None}
    if not files:
        _remove_folders(peer, made.folders)
        return kept
    images = tuple(path for path in files if storage.coming(path) in paths)
    note = LeavingsNote(made.name, files, made.folders, images)
    attempt = [made.name, made.created, making.to_answer() if making else None]
    path = _note_path(made.name, attempt)
    remote_storage.put(peer, path, json.dumps(note.to_answer()))
    return kept | dict.fromkeys(files, _stays(peer, made.name))


def _note_path(name: str, attempt: object) -> str:
    """Where a note is: the same one for the same attempt."""
    token = hashlib.sha256(json.dumps(attempt).encode()).hexdigest()
    return os.path.join(FOLDER, f"{name}~{token[:_DIGITS]}")


def written_since(peer: libvirt.virConnect, made: MadeThere) -> list[str]:
    """The files whose copy was whole and that look otherwise by now: somebody had them in use."""
    looks = made.looks or {}
    now = {path: remote_storage.look(peer, path) for path in looks}
    return [path for path, look in looks.items() if now[path] not in (None, look)]


def note_here(name: str, paths: Iterable[str]) -> None:
    """Notes real paths of this host, which a guest that was moved has left here, and of which only
    other hosts can say whether they use them. Raises OperationFailed."""
    files = {}
    for path in paths:
        with contextlib.suppress(OSError):
            seen = bounded.stat(path)
            files[path] = [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    move_journal.put(_note_path(name, sorted(files)), LeavingsNote(name, files, (), ()))


def _remove_folders(peer: libvirt.virConnect, folders: Iterable[str]) -> None:
    for folder in reversed([*folders]):
        with contextlib.suppress(errors.VirtError):  # somebody uses it by now
            remote_storage.remove_folder(peer, folder)


def _stays(peer: libvirt.virConnect, name: str) -> str:
    return (
        f"it stays until {peer.getHostname()} knows that nobody uses it: "
        f"salt-run virt.migrate_recover {name}"
    )


def names() -> list[str]:
    """The guests of whose migrations this host has notes, sorted."""
    return sorted({note.name for _, note in _notes()})


def _notes(name: str | None = None) -> Iterator[tuple[str, LeavingsNote]]:
    """(path, note) of this host's notes, of one guest or of all."""
    earlier = os.path.join(os.path.dirname(FOLDER), _EARLIER)
    for path in (*_listed(FOLDER), *_listed(earlier)):
        file = os.path.basename(path)
        about = file.rpartition("~")[0]
        if about and name in (None, about):
            note = _read(path)
            if note and note.name == about:
                yield path, note
            else:  # its source was killed while it wrote: it writes it again
                log.info("%s is no note of a migration, or not whole", file)


def _listed(folder: str) -> list[str]:
    with own_files.permitted(), contextlib.suppress(FileNotFoundError):
        return sorted(os.path.join(folder, file) for file in os.listdir(folder))
    return []


def _read(path: str) -> LeavingsNote | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            note = LeavingsNote.from_answer(json.loads(file.read(_LONGEST)), path)
    except (OSError, ValueError, RecursionError, errors.BadAnswer):
        return None
    paths = [*note.files, *note.folders, *note.images]
    plain = all(path.startswith("/") and os.path.normpath(path) == path for path in paths)
    return note if plain else None


@dataclass
class CleanupPlan:
    """delete: paths, in the order in which they go. keep: path to why it stays. shared: identities
    of what would go if it were known that no other host uses it. looks: path to how it was left;
    turns: file beside an image to the image."""

    delete: list[str] = field(default_factory=list)
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    looks: dict[str, Any] = field(default_factory=dict)
    turns: dict[str, str] = field(default_factory=dict)


def plan(
    conn: libvirt.virConnect,
    name: str,
    below: str | None = None,
    unused: Iterable[str] = (),
) -> CleanupPlan | None:
    """The CleanupPlan of this host's notes of a guest; None without one. Changes nothing.

    below: the folder of guests' images, which are looked through for what is based on what. unused:
    real paths of which all other hosts have said that nobody there uses them.
    Raises OperationFailed while the guest is on its way here again.
    """
    found, notes = CleanupPlan(), [note for _, note in _notes(name)]
    if not notes:
        return None
    _not_coming(conn, name)
    for note in notes:
        found.looks.update(note.files)
        found.turns.update({storage.coming(image): image for image in note.images})
    paths: dict[str, str] = {}
    for path, look in found.looks.items():
        if not usage.is_there(conn, path):
            continue
        why = _changed(conn, path, look) or _others_image(conn, path, found.turns)
        found.keep |= {path: why} if why else {}
        paths |= {} if why else {identity.real(path): path}
    with translated():
        used = usage.read(conn, below=below, beside=[*paths, *paths.values()])
        delete, keep, found.shared = usage.decide(conn, dict.fromkeys(paths), used, unused)
    found.keep |= {paths[real]: why for real, why in keep.items()}
    for path in (paths[real] for real in delete):
        image = found.turns.get(path)
        if image in found.keep:
            found.keep[path] = f"it says that {image} is not whole"
        else:
            found.delete.append(path)
    # who finds an image takes it for whole when its turn is gone
    found.delete.sort(key=lambda path: path in found.turns)
    return found


def _not_coming(conn: libvirt.virConnect, name: str) -> None:
    present = {*lookup.names(conn)}
    if name in {
        reservation.name for reservation in reservations.here(present, reservations.FOLDER)
    }:
        raise errors.OperationFailed(f"{name} is on its way to this host again: wait for it")


def _others_image(conn: libvirt.virConnect, path: str, turns: dict[str, str]) -> str | None:
    for turn, image in turns.items():
        if path == image and not usage.is_there(conn, turn):
            return f"{turn} was removed: others may have taken it for a whole image"
    return None


def _changed(conn: libvirt.virConnect, path: str, look: Any) -> str | None:
    """Why it is not, or not surely, what the migration has left; None when it is."""
    if isinstance(look, str):
        now: Any = remote_storage.look(conn, path)
    else:
        try:
            seen = bounded.stat(path)
        except OSError as exc:
            return f"it cannot be looked at: {exc.strerror}"
        now = [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]
    if now == look:
        return None
    return "it was changed since the migration left it: look whose it is; remove it, or move it"


def clean(
    conn: libvirt.virConnect,
    name: str,
    below: str | None = None,
    unused: Iterable[str] = (),
) -> tuple[list[str], dict[str, str]]:
    """Deletes what the plan says, each file while no QEMU can open it: ([path], {path: why it
    stays}). A note ends with the last of its files."""

    def look() -> CleanupPlan:
        return plan(conn, name, below, unused) or CleanupPlan()

    deleted = []
    with deletion.planned(conn, look) as (todo, paths):
        for path in paths:
            image = todo.turns.get(path)
            stays = image in todo.keep
            why = f"it says that {image} is not whole" if stays else _deleted(conn, path)
            if why:
                todo.keep[path] = why
            else:
                deleted.append(path)
    for path, note in _notes(name):
        _end(path, note, todo.keep)
    return deleted, todo.keep


def _deleted(conn: libvirt.virConnect, path: str) -> str | None:
    """Why a file stays; None when it is gone."""
    try:
        purge.delete_storage(conn, path)
    except errors.VirtError as exc:
        return exc.text
    return "it is still there" if usage.is_there(conn, path) else None


def _end(path: str, note: LeavingsNote, kept: dict[str, str]) -> None:
    left = {one: look for one, look in note.files.items() if one in kept}
    if left:
        move_journal.put(path, replace(note, files=left))
        return
    for folder in reversed(note.folders):
        with contextlib.suppress(OSError):  # not empty
            os.rmdir(folder)
    os.unlink(path)
