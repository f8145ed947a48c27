"""A guest's disk and its backups as real qcow2 files, and the content of the disk at each
backup."""

import subprocess

from saltvirt.backup.model import backup_ids, chains, checksum_blocks, record
from saltvirt.backup.model.record import BackupDiskRecord, BackupRecord
from saltvirt.backup.target import target as targets

UUID = "b7d1f0a2-52a3-4c0e-9d53-0f8f6e1f4d11"
XML = "<domain><name>web1</name></domain>"
MIB = 2**20
SIZE = 4 * MIB


def qemu_img(*argv):
    return subprocess.run(["qemu-img", *argv], check=True, capture_output=True, text=True).stdout


def qemu_io(path, *commands):
    argv = [part for one in commands for part in ("-c", one)]
    subprocess.run(["qemu-io", "-f", "qcow2", *argv, path], check=True, capture_output=True)


class Guest:
    """A disk that is written to, and what it was at each backup."""

    def __init__(self, folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        self.target = targets.BackupTarget(str(folder))
        self.now = bytearray(SIZE)
        self.changed = set()
        self.images = {}

    def write(self, number, byte):
        """One of the disk's 64 clusters of 64 KiB."""
        self.now[number * 65536 : (number + 1) * 65536] = bytes([byte]) * 65536
        self.changed.add(number)

    def new_ident(self):
        stock = self.target.catalog(UUID)
        return backup_ids.following(stock.backups, "2026-11-23T15:52:20Z", "0" * 8)

    def back_up(self, whole=False, made=None):
        made, last = made or self.new_ident(), self.target.catalog(UUID).last
        parent = None if whole or last is None else last.backup_id
        numbers = sorted(self.changed) if parent else range(64)
        with self.target.create(UUID, made) as new:
            taken = disk(made, parent)
            path = new.disk_path("vda")
            below = ["-b", taken.backing[0], "-F", taken.backing[1]] if parent else []
            qemu_img("create", "-q", "-f", "qcow2", *below, path, str(SIZE))
            writes = []
            with new.checksum_writer("vda") as file:
                for number in numbers:
                    at = number * 65536
                    data = bytes(self.now[at : at + 65536])
                    file.add(checksum_blocks.compute(at, data))
                    writes.append(f"write -q -P {data[0]} {at} 65536")
            qemu_io(path, *writes)
            new.finish(told([disk(made, parent, file.sha256)]), XML)
        self.changed.clear()
        self.images[made] = bytes(self.now)
        return made

    def restored(self, made, folder):
        """What a person gets with qemu-img alone."""
        out = folder / "restored.raw"
        path = f"{self.target.folder.root}/{UUID}/{made}/vda.qcow2"
        qemu_img("convert", "-O", "raw", path, str(out))
        return out.read_bytes()


def disk(made, parent=None, digest="a" * 64, **other):
    reason = None if parent else "the first"
    given = {"parent": parent, "reason": reason, "checkpoint": chains.checkpoint(made)}
    return BackupDiskRecord("vda", SIZE, "file /srv/web1.qcow2", digest, **{**given, **other})


def told(disks, **other):
    given = {
        "backup_id": "",
        "guest": "web1",
        "uuid": "",
        "taken_at": "2026-11-23T15:52:20Z",
        "requester": "root",
        "host": "hv1",
        "consistency": record.CRASH,
        "qemu_img": "7.2.22",
        "definition_sha256": "",
        "disks": tuple(disks),
    }
    return BackupRecord(**{**given, **other})


def assert_whole(guest, tmp_path):
    """Whatever is listed as good is what the disk was then."""
    stock = guest.target.catalog(UUID)
    for one in stock.good_ids:
        assert guest.restored(one, tmp_path) == guest.images[one], one
    return stock.good_ids
