"""Records and catalogs of backups for tests."""

from saltvirt.backup.model import chains
from saltvirt.backup.model.catalog import Catalog, StoredBackup
from saltvirt.backup.model.record import DEFINITION, BackupDiskRecord, BackupRecord

UUID = "b7d1f0a2-52a3-4c0e-9d53-0f8f6e1f4d11"
SHA = "a" * 64
SOURCE = "file /srv/salt-images/web1_system.qcow2"
GIB = 2**30


def ident(number, when="20261123T155220Z"):
    return f"{number:06d}-{when}-0000{number:04x}"


def disk(target="vda", parent=None, of=1, **other):
    """parent: a number."""
    given = {
        "size_bytes": GIB,
        "source": SOURCE,
        "checksums_sha256": SHA,
        "parent": ident(parent) if parent else None,
        "reason": None if parent else "the first",
        "checkpoint": chains.checkpoint(ident(of)),
        "stored_bytes": 7,
    }
    return BackupDiskRecord(target, **{**given, **other})


def record(number=1, disks=None, **other):
    given = {
        "backup_id": ident(number),
        "guest": "web1",
        "uuid": UUID,
        "taken_at": "2026-11-23T15:52:20Z",
        "requester": "root",
        "host": "hv1",
        "consistency": "frozen",
        "qemu_img": "7.2.22",
        "definition_sha256": SHA,
        "disks": (disk(of=number),) if disks is None else tuple(disks),
    }
    return BackupRecord(**{**given, **other})


def backup(number, disks=None, verified=None, without=(), **other):
    """without: files that are gone."""
    made = record(number, disks, **other)
    lengths = {one.file: one.stored_bytes for one in made.parts}
    lengths |= {one.checksums: 9 for one in made.parts} | {DEFINITION: 11}
    kept = {name: length for name, length in lengths.items() if name not in without}
    return StoredBackup(made.backup_id, made, lengths=kept, verification=verified)


def chain(numbers, target="vda", first=None):
    """Backups of one disk, each on the one before; the first is whole, or stands on a number."""
    found, below = [], first
    for number in numbers:
        found.append(backup(number, [disk(target, below, number)]))
        below = number
    return found


def stock(*backups):
    return Catalog(backups)
