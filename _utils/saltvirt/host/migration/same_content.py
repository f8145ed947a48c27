"""Whether the other host's file has the bytes of ours: read once, then remembered.

What was found is kept with the sizes and times of both files, and is good while they stay.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

from saltvirt import places
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.migration import remote_storage

RECORD = f"{places.STATE}/same.json"
_MOST = 500


def same_there(peer: libvirt.virConnect, path: str, record: str = RECORD) -> bool:
    """Whether the file of that path on the other host equals the local one.

    No pool is held while it is read.
    """
    with _opened(peer, path) as there:
        if there is None:
            return False
        answer = begin(there, path, _uuid(peer), record)
    return answer()


def remember(peer: libvirt.virConnect, path: str, record: str = RECORD) -> None:
    """Notes that the file of that path on the other host was just made from ours."""
    with _opened(peer, path) as there:
        if there is not None:
            _note(record, f"{_uuid(peer)}:{path}", _signs(there, path))


@contextlib.contextmanager
def _opened(peer: libvirt.virConnect, path: str) -> Iterator[libvirt.virStorageVol | None]:
    """The volume of that path for the block, or None."""
    with remote_storage.opened(peer, os.path.dirname(path)) as pool:
        yield None if pool is None else remote_storage.volume(pool, path)


def _uuid(peer: libvirt.virConnect) -> str | None:
    with translated():
        return ElementTree.fromstring(peer.getCapabilities()).findtext("host/uuid")


def begin(
    there: libvirt.virStorageVol, path: str, host_uuid: str | None, record: str = RECORD
) -> Callable[[], bool]:
    """Begins to compare them; a callable that says it, for when the volume's pool need not be
    there any more."""
    key, now = f"{host_uuid}:{path}", _signs(there, path)
    if _read(record).get(key) == now:
        return lambda: True
    compare = remote_storage.begin_compare(there, path)

    def answer() -> bool:
        if not compare():
            return False
        _note(record, key, now)
        return True

    return answer


def _note(record: str, key: str, signs: list[Any]) -> None:
    known = _read(record)
    known.pop(key, None)
    _write(record, dict([*known.items(), (key, signs)][-_MOST:]))


def _signs(there: libvirt.virStorageVol, path: str) -> list[Any]:
    """What changes with either file: size, time and number of ours; size and time of theirs."""
    stat = os.stat(path)
    with translated():
        root = ElementTree.fromstring(there.XMLDesc(0))
    mtime = root.findtext("target/timestamps/mtime")
    return [
        stat.st_size,
        stat.st_mtime_ns,
        stat.st_ino,
        mtime,
        remote_storage.physical_bytes(there),
    ]


def _read(record: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError), open(record, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
        return found
    return {}


def _write(record: str, known: dict[str, Any]) -> None:
    """It is only a memory: a host where it cannot be written reads the file again."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
        with open(f"{record}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(f"{record}.{os.getpid()}", record)
