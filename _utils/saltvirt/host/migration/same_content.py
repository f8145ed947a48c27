"""Compare a file of the other host with ours: it is read once, and the result is remembered.

The result is stored with the sizes and times of both files, and is valid while they do not change.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt, translated
from saltvirt.host.migration import remote_storage
from saltvirt.system import atomic_file, paths

RECORD = f"{paths.STATE}/same.json"
_MAX_RECORDS = 500


def equals_remote(peer: libvirt.virConnect, path: str, record: str = RECORD) -> bool:
    """Return whether the file of that path on the other host equals the local one.

    No pool is in use while it is read.
    """
    with _open_volume(peer, path) as volume:
        if volume is None:
            return False
        answer = begin(volume, path, _uuid(peer), record)
    return answer()


def remember(peer: libvirt.virConnect, path: str, record: str = RECORD) -> None:
    """Record that the file of that path on the other host was just created from ours."""
    with _open_volume(peer, path) as volume:
        if volume is not None:
            _note(record, f"{_uuid(peer)}:{path}", _fingerprint(volume, path))


@contextlib.contextmanager
def _open_volume(peer: libvirt.virConnect, path: str) -> Iterator[libvirt.virStorageVol | None]:
    """Return the volume of that path for the block, or None."""
    with remote_storage.open_pool(peer, os.path.dirname(path)) as pool:
        yield None if pool is None else remote_storage.volume(pool, path)


def _uuid(peer: libvirt.virConnect) -> str | None:
    with translated():
        return ElementTree.fromstring(peer.getCapabilities()).findtext("host/uuid")


def begin(
    volume: libvirt.virStorageVol, path: str, host_uuid: str | None, record: str = RECORD
) -> Callable[[], bool]:
    """Begin to compare the files. Return a function that returns the result; the volume's pool is
    no longer needed then."""
    key, current = f"{host_uuid}:{path}", _fingerprint(volume, path)
    if _read(record).get(key) == current:
        return lambda: True
    compare = remote_storage.begin_compare(volume, path)

    def answer() -> bool:
        if not compare():
            return False
        _note(record, key, current)
        return True

    return answer


def _note(record: str, key: str, fingerprint: list[Any]) -> None:
    records = _read(record)
    records.pop(key, None)
    _write(record, dict([*records.items(), (key, fingerprint)][-_MAX_RECORDS:]))


def _fingerprint(volume: libvirt.virStorageVol, path: str) -> list[Any]:
    """Return the values that change with either file: size, time and inode of ours; size and time
    of theirs."""
    stat = os.stat(path)
    with translated():
        root = ElementTree.fromstring(volume.XMLDesc(0))
    mtime = root.findtext("target/timestamps/mtime")
    remote_bytes = remote_storage.physical_bytes(volume)
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino, mtime, remote_bytes]


def _read(record: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError), open(record, encoding="utf-8") as file:
        records: dict[str, Any] = json.load(file)
        return records
    return {}


def _write(record: str, records: dict[str, Any]) -> None:
    """Store the results. If that fails, the file is compared again."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
        part = atomic_file.unique_part(record)
        atomic_file.write(record, json.dumps(records).encode(), durable=False, part=part)
