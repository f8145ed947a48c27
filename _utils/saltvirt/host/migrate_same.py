"""Whether the other host's file has the bytes of ours: read once, then remembered.

What was found is kept with the sizes and times of both files, and is good while they stay.
"""

import contextlib
import json
import os
from xml.etree import ElementTree

from saltvirt.host import migrate_store
from saltvirt.host.connection import translated

RECORD = "/var/lib/salt-virt/same.json"
_MOST = 500


def same(there, path, host_uuid, record=RECORD):
    """Whether the volume ``there`` of that host equals the local file."""
    key, now = f"{host_uuid}:{path}", _signs(there, path)
    known = _read(record)
    if known.get(key) == now:
        return True
    if not migrate_store.equals(there, path):
        return False
    known.pop(key, None)
    _write(record, dict([*known.items(), (key, now)][-_MOST:]))
    return True


def _signs(there, path):
    """What changes with either file: size, time and number of ours; size and time of theirs."""
    stat = os.stat(path)
    with translated():
        root = ElementTree.fromstring(there.XMLDesc(0))
    mtime = root.findtext("target/timestamps/mtime")
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino, mtime, migrate_store.physical_bytes(there)]


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
