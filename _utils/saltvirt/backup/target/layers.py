"""A disk of a backup with all that it stands on, as QEMU's tools are told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.backup.model import record
from saltvirt.backup.model.record import BackupDiskRecord, BackupRecord
from saltvirt.backup.target import daemon, keyfile
from saltvirt.backup.target.keyfile import Key
from saltvirt.backup.target.target import BackupTarget
from saltvirt.images import tools


@dataclass(frozen=True)
class Layers:
    """paths: of its own file, and of those below it. key: with which all of them are encrypted;
    None: they are not."""

    paths: tuple[str, ...]
    key: Key | None = None

    @property
    def argv(self) -> list[str]:
        """How a tool is told of it, with the key where it needs one."""
        return image_arguments(self.paths[0], len(self.paths), self.key)

    @property
    def checksum_key(self) -> bytes | None:
        """With what the digests of its pieces are made. Raises NoKey."""
        return self.key.checksum_key() if self.key else None

    def exported(self, export: str) -> daemon.ExportedDisk:
        """As the storage daemon is to show it."""
        below = _backing_node(self.paths[1:]) if self.key else None
        crypt = _encryption() if self.key else None
        secret = self.key.qemu_object if self.key else None
        return daemon.ExportedDisk(self.paths[0], record.QCOW2, export, None, secret, crypt, below)


def load(target: BackupTarget, backup_record: BackupRecord, disk: BackupDiskRecord) -> Layers:
    """Those of a disk of a backup. Raises BadAnswer, ImageError, NotFound where a file is not what
    its record says, NoKey."""
    paths = target.layer_paths(backup_record, disk)
    return Layers(tuple(paths), keyfile.from_record(disk.key) if disk.key else None)


def image_arguments(path: str, layers: int, key: Key | None) -> list[str]:
    """How a tool is told of a qcow2. layers: so many files it is, itself among them."""
    if key is None:
        return ["-f", record.QCOW2, path]
    options = f"driver={record.QCOW2},file.filename={tools.escaped(path)}"
    for number in range(layers):
        options += f",{'backing.' * number}encrypt.key-secret={keyfile.ID}"
    return ["--object", key.qemu_object, "--image-opts", options]


def compress_arguments(path: str) -> list[str]:
    """How a tool is told of a qcow2 that it is to write compressed."""
    return ["--image-opts", f"driver=compress,file.driver={record.QCOW2},file.file.driver=file,"
            f"file.file.filename={tools.escaped(path)}"]  # fmt: skip


def _backing_node(paths: tuple[str, ...]) -> dict[str, Any] | None:
    """What is below, each with its key: QEMU would open it by its name alone, and without."""
    if not paths:
        return None
    return {
        "driver": record.QCOW2, "read-only": True, "encrypt": _encryption(),
        "file": {"driver": "file", "filename": paths[0], "read-only": True},
        "backing": _backing_node(paths[1:]),
    }  # fmt: skip


def _encryption() -> dict[str, str]:
    return {"format": keyfile.LUKS, "key-secret": keyfile.ID}
