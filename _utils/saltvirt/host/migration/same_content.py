"""Whether the other host's file has the bytes of ours: read once, then remembered.

What was found is kept with the sizes and times of both files, and is good while they stay.
"""

import contextlib
import json
import os
from xml.etree import ElementTree

from saltvirt.host.connection import translated
from saltvirt.host.migration import remote_storage

RECORD = "/var/lib/salt-virt/same.json"
_MOST = 500


def same(there, path, host_uuid, record=RECORD):
    """Whether the volume ``there`` of that host equals the local file."""
    return begin(there, path, host_uuid, record)()


def same_there(peer, path, record=RECORD):
    """The same of the file of that path on the other host; no pool is held while it is read."""
    with _opened(peer, path) as there:
        if there is None:
            return False
        answer = begin(there, path, _uuid(peer), record)
    return answer()


def remember(peer, path, record=RECORD):
    """Notes that the file of that path on the other host was just made from ours."""
    with _opened(peer, path) as there:
        if there is not None:
            _note(record, f"{_uuid(peer)}:{path}", _signs(there, path))


@contextlib.contextmanager
def _opened(peer, path):
    """The volume of that path for the block, or None."""
    with remote_storage.opened(peer, os.path.dirname(path)) as pool:
        yield None if pool is None else remote_storage.volume(pool, path)


def _uuid(peer):
    with translated():
        return ElementTree.fromstring(peer.getCapabilities()).findtext("host/uuid")


def begin(there, path, host_uuid, record=RECORD):
    """Begins to compare them; a callable that says it, for when the volume's pool need not be
    there any more."""
    key, now = f"{host_uuid}:{path}", _signs(there, path)
    if _read(record).get(key) == now:
        return lambda: True
    compare = remote_storage.begin_compare(there, path)

    def answer():
        if not compare():
            return False
        _note(record, key, now)
        return True

    return answer


def _note(record, key, signs):
    known = _read(record)
    known.pop(key, None)
    _write(record, dict([*known.items(), (key, signs)][-_MOST:]))


def _signs(there, path):
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


def _read(record):
    with contextlib.suppress(OSError, ValueError), open(record, encoding="utf-8") as file:
        return json.load(file)
    return {}


def _write(record, known):
    """It is only a memory: a host where it cannot be written reads the file again."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
        with open(f"{record}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(f"{record}.{os.getpid()}", record)
