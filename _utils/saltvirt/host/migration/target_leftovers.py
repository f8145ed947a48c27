"""Files of rolled-back migrations on their target, which the target itself deletes.

The source cannot see which processes of the target have a file open, prevent a QEMU from opening
one, or tell whether other hosts use it. So it leaves a note on the target, through its libvirt: the
created files and their fingerprints. The target's minion deletes the files that are unchanged and
unused, see ``virt.migrate_clean``; ``salt-run`` asks the other hosts.
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

from saltvirt import errors
from saltvirt.host import own_files
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import lookup, purge
from saltvirt.host.migration import remote_storage, reservations
from saltvirt.host.storage import deletion, identity, usage
from saltvirt.migration import storage
from saltvirt.migration.journal import LeftoverNote, TargetFiles
from saltvirt.system import bounded_io, message_file, paths

log = logging.getLogger(__name__)

FOLDER = f"{paths.STATE}/target_leftovers"
NEWER = "which was written to since the copy, may be newer"
# enough for the files of any migration
_MAX_NOTE_BYTES = 2**20
# digits that distinguish the notes of one guest
_DIGITS = 16


def hand_over(peer: libvirt.virConnect, target_files: TargetFiles) -> dict[str, str]:
    """Write a note on the target about the created files. Return {path: why it still exists}.

    The migration must be rolled back: none of our operations needs the files any more. A repeated
    call does not write the note twice. Raises VirtError, and must then be called again.
    """
    newer, making = written_since(peer, target_files), target_files.making
    paths = [path for path in target_files.created if not reservations.is_reservation(path)]
    fingerprints = {
        path: remote_storage.fingerprint(peer, path) for path in paths if path not in newer
    }
    retained = dict.fromkeys(newer, f"{NEWER}: check it, then remove it or move it away")
    if making:
        fingerprints[making.path], reason = remote_storage.inspect_claim(peer, making)
        retained |= {making.path: reason} if reason else {}
    files = {
        path: fingerprint for path, fingerprint in fingerprints.items() if fingerprint is not None
    }
    if not files:
        _remove_folders(peer, target_files.folders)
        return retained
    images = tuple(path for path in files if storage.incoming_path(path) in paths)
    note = LeftoverNote(target_files.name, files, target_files.folders, images)
    attempt = [target_files.name, target_files.created, making.to_answer() if making else None]
    path = _note_path(target_files.name, attempt)
    remote_storage.write_file(peer, path, json.dumps(note.to_answer()))
    return retained | dict.fromkeys(files, _retention_reason(peer, target_files.name))


def _note_path(name: str, attempt: object) -> str:
    """Return the path of a note: the same one for the same attempt."""
    token = hashlib.sha256(json.dumps(attempt).encode()).hexdigest()
    return os.path.join(FOLDER, f"{name}~{token[:_DIGITS]}")


def written_since(peer: libvirt.virConnect, target_files: TargetFiles) -> list[str]:
    """Return the files that have changed since their copy was complete: they were in use."""
    fingerprints = target_files.fingerprints or {}
    current = {path: remote_storage.fingerprint(peer, path) for path in fingerprints}
    return [
        path
        for path, fingerprint in fingerprints.items()
        if current[path] not in (None, fingerprint)
    ]


def record_local(name: str, paths: Iterable[str]) -> None:
    """Write a note about real paths of this host that a migrated guest has left, and that other
    hosts may use. Raises OperationFailed."""
    files = {}
    for path in paths:
        with contextlib.suppress(OSError):
            info = bounded_io.stat(path)
            files[path] = [info.st_size, info.st_mtime_ns, info.st_ctime_ns]
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    message_file.write(_note_path(name, sorted(files)), LeftoverNote(name, files, (), ()))


def _remove_folders(peer: libvirt.virConnect, folders: Iterable[str]) -> None:
    for folder in reversed([*folders]):
        with contextlib.suppress(errors.VirtError):  # the folder is in use by now
            remote_storage.remove_folder(peer, folder)


def _retention_reason(peer: libvirt.virConnect, name: str) -> str:
    return (
        f"it is kept until {peer.getHostname()} knows that it is unused: salt-run "
        f"virt.migrate_recover {name}"
    )


def names() -> list[str]:
    """Return the guests for which this host has notes, sorted."""
    return sorted({note.name for _, note in _notes()})


def _notes(name: str | None = None) -> Iterator[tuple[str, LeftoverNote]]:
    """Yield (path, note) of this host's notes, for one guest or for all."""
    for path in _list_notes():
        file = os.path.basename(path)
        guest = file.rpartition("~")[0]
        if guest and name in (None, guest):
            note = _read(path)
            if note and note.name == guest:
                yield path, note
            else:  # the source was killed while writing: it will write the note again
                log.info("%s is not a complete record of a migration", file)


def _list_notes() -> list[str]:
    with own_files.permitted(), contextlib.suppress(FileNotFoundError):
        return sorted(os.path.join(FOLDER, file) for file in os.listdir(FOLDER))
    return []


def _read(path: str) -> LeftoverNote | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            note = LeftoverNote.from_answer(json.loads(file.read(_MAX_NOTE_BYTES)), path)
    except (OSError, ValueError, RecursionError, errors.BadAnswer):
        return None
    paths = [*note.files, *note.folders, *note.images]
    is_normalized = all(path.startswith("/") and os.path.normpath(path) == path for path in paths)
    return note if is_normalized else None


@dataclass
class CleanupPlan:
    """delete: paths, in the order of their deletion. keep: path to the reason. shared: identities
    of files that are deleted only if no other host uses them. fingerprints: by path;
    incoming_images: marker file to its image."""

    delete: list[str] = field(default_factory=list)
    keep: dict[str, str] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    fingerprints: dict[str, Any] = field(default_factory=dict)
    incoming_images: dict[str, str] = field(default_factory=dict)


def plan(
    conn: libvirt.virConnect, name: str, below: str | None = None, unused: Iterable[str] = ()
) -> CleanupPlan | None:
    """Return the CleanupPlan for this host's notes of a guest; None without one. Changes nothing.

    below: the folder of guests' images, which is searched for backing files. unused: real paths
    that all other hosts have reported as unused. Raises OperationFailed while the guest is being
    moved to this host again.
    """
    cleanup, notes = CleanupPlan(), [note for _, note in _notes(name)]
    if not notes:
        return None
    _refuse_arriving(conn, name)
    for note in notes:
        cleanup.fingerprints.update(note.files)
        cleanup.incoming_images.update(
            {storage.incoming_path(image): image for image in note.images}
        )
    paths: dict[str, str] = {}
    for path, fingerprint in cleanup.fingerprints.items():
        if not usage.is_there(conn, path):
            continue
        reason = _change_reason(conn, path, fingerprint) or _used_image(
            conn, path, cleanup.incoming_images
        )
        cleanup.keep |= {path: reason} if reason else {}
        paths |= {} if reason else {identity.real(path): path}
    with translated():
        used = usage.read(conn, below_folder=below, sibling_paths=[*paths, *paths.values()])
        delete, keep, cleanup.shared = usage.decide(conn, dict.fromkeys(paths), used, unused)
    cleanup.keep |= {paths[real]: reason for real, reason in keep.items()}
    for path in (paths[real] for real in delete):
        image = cleanup.incoming_images.get(path)
        if image in cleanup.keep:
            cleanup.keep[path] = f"it records that {image} is incomplete"
        else:
            cleanup.delete.append(path)
    # without its marker file an image counts as complete
    cleanup.delete.sort(key=lambda path: path in cleanup.incoming_images)
    return cleanup


def _refuse_arriving(conn: libvirt.virConnect, name: str) -> None:
    present = {*lookup.names(conn)}
    if name in {
        reservation.name for reservation in reservations.local(present, reservations.FOLDER)
    }:
        raise errors.OperationFailed(f"{name} is being migrated to this host again: wait for it")


def _used_image(conn: libvirt.virConnect, path: str, incoming_images: dict[str, str]) -> str | None:
    for incoming, image in incoming_images.items():
        if path == image and not usage.is_there(conn, incoming):
            return f"{incoming} was removed: other guests may use it as a complete image"
    return None


def _change_reason(conn: libvirt.virConnect, path: str, fingerprint: Any) -> str | None:
    """Return why the file is not, or not certainly, what the migration has left; None if it is."""
    if isinstance(fingerprint, str):
        current: Any = remote_storage.fingerprint(conn, path)
    else:
        try:
            info = bounded_io.stat(path)
        except OSError as exc:
            return f"it cannot be inspected: {exc.strerror}"
        current = [info.st_size, info.st_mtime_ns, info.st_ctime_ns]
    if current == fingerprint:
        return None
    return (
        "it was changed since the migration left it: find out who uses it, then remove it or move "
        "it"
    )


def clean(
    conn: libvirt.virConnect, name: str, below: str | None = None, unused: Iterable[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Delete what the plan contains, each file while no QEMU can open it. Return ([path], {path:
    why it stays}). A note is removed with the last of its files."""

    def make_plan() -> CleanupPlan:
        return plan(conn, name, below, unused) or CleanupPlan()

    deleted = []
    with deletion.deletion_plan(conn, make_plan) as (todo, paths):
        for path in paths:
            image = todo.incoming_images.get(path)
            is_retained = image in todo.keep
            reason = (
                f"it records that {image} is incomplete" if is_retained else _delete(conn, path)
            )
            if reason:
                todo.keep[path] = reason
            else:
                deleted.append(path)
    for path, note in _notes(name):
        _end(path, note, todo.keep)
    return deleted, todo.keep


def _delete(conn: libvirt.virConnect, path: str) -> str | None:
    """Return why a file stays; None if it was deleted."""
    try:
        purge.delete_storage(conn, path)
    except errors.VirtError as exc:
        return exc.text
    return "it still exists" if usage.is_there(conn, path) else None


def _end(path: str, note: LeftoverNote, retained: dict[str, str]) -> None:
    remaining = {
        file_path: fingerprint
        for file_path, fingerprint in note.files.items()
        if file_path in retained
    }
    if remaining:
        message_file.write(path, replace(note, files=remaining))
        return
    for folder in reversed(note.folders):
        with contextlib.suppress(OSError):  # not empty
            os.rmdir(folder)
    os.unlink(path)
