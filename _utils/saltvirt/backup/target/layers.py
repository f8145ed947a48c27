"""Options of QEMU's tools for a disk of a backup and its backing files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltvirt.backup.model import record
from saltvirt.backup.model.record import BackupDiskRecord, BackupRecord
from saltvirt.backup.target import daemon, keyfile
from saltvirt.backup.target.keyfile import Key
from saltvirt.backup.target.target import BackupTarget
from saltvirt.system import tools


@dataclass(frozen=True)
class Layers:
    """paths: of its file and its backing files. key: encryption key of all of them; None: not
    encrypted."""

    paths: tuple[str, ...]
    key: Key | None = None

    @property
    def argv(self) -> list[str]:
        """Arguments for a tool that opens the disk."""
        return image_arguments(self.paths[0], len(self.paths), self.key)

    @property
    def checksum_key(self) -> bytes | None:
        """Key of the HMAC for its checksum blocks; None: not encrypted. Raises NoKey."""
        return self.key.checksum_key() if self.key else None

    def exported(self, export: str) -> daemon.ExportedDisk:
        """Return the disk as the storage daemon exports it."""
        below = _backing_node(self.paths[1:]) if self.key else None
        crypt = _encryption() if self.key else None
        secret = self.key.qemu_object if self.key else None
        return daemon.ExportedDisk(self.paths[0], record.QCOW2, export, None, secret, crypt, below)


def load(target: BackupTarget, backup_record: BackupRecord, disk: BackupDiskRecord) -> Layers:
    """Return the layers of a disk. Raises NoKey, and BadAnswer, ImageError or NotFound if a file
    does not match its record."""
    paths = target.layer_paths(backup_record, disk)
    return Layers(tuple(paths), keyfile.from_record(disk.key) if disk.key else None)


def image_arguments(path: str, layers: int, key: Key | None) -> list[str]:
    """Return the arguments for a tool that opens a qcow2. layers: number of files in the chain."""
    if key is None:
        return ["-f", record.QCOW2, path]
    options = f"driver={record.QCOW2},file.filename={tools.escaped(path)}"
    for number in range(layers):
        options += f",{'backing.' * number}encrypt.key-secret={keyfile.ID}"
    return ["--object", key.qemu_object, "--image-opts", options]


def compress_arguments(path: str) -> list[str]:
    """Return the arguments for a tool that writes a compressed qcow2."""
    return ["--image-opts", f"driver=compress,file.driver={record.QCOW2},file.file.driver=file,"
            f"file.file.filename={tools.escaped(path)}"]  # fmt: skip


def _backing_node(paths: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the node of the backing files with their keys; by default QEMU would open them without
    a key."""
    if not paths:
        return None
    return {
        "driver": record.QCOW2, "read-only": True, "encrypt": _encryption(),
        "file": {"driver": "file", "filename": paths[0], "read-only": True},
        "backing": _backing_node(paths[1:]),
    }  # fmt: skip


def _encryption() -> dict[str, str]:
    return {"format": keyfile.LUKS, "key-secret": keyfile.ID}
