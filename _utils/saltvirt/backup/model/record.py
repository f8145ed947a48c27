"""The record of a backup: guest, time, requester, consistency and disks.

``record.json`` is written once, together with the backup, and never changed. A record that is read
is not trusted: each text is checked, so that it is harmless in a path, on a terminal, and as a name
for libvirt.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from saltvirt import errors, names
from saltvirt.backup.model import backup_ids
from saltvirt.errors import BadAnswer
from saltvirt.schema import Message, optional
from saltvirt.units import short_repr

FORMAT = 1
FILE = "record.json"
SEAL = "record.sha256"
DEFINITION = "domain.xml"
# not a name that libvirt gives to a disk
STATE = "state"
# names of the parts of the state in `BackupRecord.skipped`
FIRMWARE, TPM = "firmware variables", "TPM state"
# larger than the record of a guest with 256 disks
MAX_BYTES = 1024**2
MAX_DEFINITION_BYTES = 4 * 1024**2
MAX_DISKS = 256

FROZEN, CRASH, STOPPED = "frozen", "crash", "stopped"
CONSISTENCIES = (FROZEN, CRASH, STOPPED)
RAW, QCOW2 = "raw", "qcow2"

_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHA256 = re.compile("[0-9a-f]{64}")
_TARGET = re.compile("[A-Za-z][A-Za-z0-9]{0,31}")
_KEY = re.compile("([A-Za-z0-9][A-Za-z0-9_-]{0,62})[.]([0-9a-f]{16})")
_CHECKPOINT = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_MINION = re.compile(r"[^/\x00-\x20\x7f]{1,255}")
_LINE = re.compile("[^\\x00-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]{0,1000}")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~:_-]{0,63}")


@dataclass(frozen=True)
class BackupDiskRecord(Message):
    """A disk of a backup.

    target: libvirt's name. size_bytes: as the guest sees it. source: the source in the definition.
    checksums_sha256: digest of the file with the checksum blocks. parent: the backup that its file
    is an overlay on; None for a full backup. reason: why it is a full backup. checkpoint: libvirt's
    checkpoint from which the next increment begins; None: not possible. stored_bytes: size of its
    file. key: encryption key as in `key_name`; None: not encrypted.
    """

    ALIASES: ClassVar[dict[str, str]] = {"pieces_sha256": "checksums_sha256"}

    target: str
    size_bytes: int
    source: str
    checksums_sha256: str
    parent: str | None = None
    reason: str | None = None
    checkpoint: str | None = None
    stored_bytes: int = 0
    key: str | None = optional(None)

    @property
    def file(self) -> str:
        """Name of the qcow2 file in the folder of the backup."""
        return disk_file(self.target)

    @property
    def checksums(self) -> str:
        """Name of the file with its checksum blocks."""
        return checksum_file(self.target)

    @property
    def backing(self) -> tuple[str, str] | None:
        """(name in the qcow2, format) of the file that it is an overlay on."""
        return None if self.parent is None else (f"../{self.parent}/{self.file}", QCOW2)


@dataclass(frozen=True)
class BackupRecord(Message):
    """A backup.

    taken_at: the moment of the disks, as ``2026-11-23T15:52:20Z``. requester: user who requested
    it. host: hypervisor of the guest. qemu_img: version that wrote the disks. definition_sha256:
    digest of domain.xml. finished: when all data had been read, by the clock of the target host.
    skipped: part of the guest that is not backed up to the reason. state: firmware variables and
    TPM state, an `archive` stored as a disk with the name STATE.
    """

    ALIASES: ClassVar[dict[str, str]] = {
        "ident": "backup_id",
        "when": "taken_at",
        "by": "requester",
    }

    backup_id: str
    guest: str
    uuid: str
    taken_at: str
    requester: str
    host: str
    consistency: str
    qemu_img: str
    definition_sha256: str
    disks: tuple[BackupDiskRecord, ...]
    format: int = FORMAT
    finished: str | None = optional(None)
    skipped: dict[str, str] = optional({})
    state: BackupDiskRecord | None = optional(None)

    @property
    def parts(self) -> tuple[BackupDiskRecord, ...]:
        """All parts that have a file: the disks and the state."""
        return (*self.disks, self.state) if self.state else self.disks

    def disk(self, target: str) -> BackupDiskRecord | None:
        """Return the disk with this name, or the state."""
        return next((part for part in self.parts if part.target == target), None)

    @property
    def parents(self) -> set[str]:
        """The backups on which the disks depend directly."""
        return {disk.parent for disk in self.disks if disk.parent is not None}


def disk_file(target: str) -> str:
    """Return the name of a disk's file in the folder of its backup."""
    return f"{target}.qcow2"


def checksum_file(target: str) -> str:
    """Return the name of the file with a disk's checksum blocks."""
    return f"{target}.pieces"


def is_target(text: object) -> bool:
    """Whether the value is libvirt's name of a disk and safe in a file name."""
    return isinstance(text, str) and _TARGET.fullmatch(text) is not None


def is_uuid(text: object) -> bool:
    """Whether the value is a UUID as libvirt writes it."""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def key_name(text: str) -> str | None:
    """Return the name of the key in ``NAME.FINGERPRINT``; None if it is not valid. The fingerprint
    distinguishes keys with the same name."""
    match = _KEY.fullmatch(text)
    return match[1] if match else None


def is_sha256(text: object) -> bool:
    """Whether the value is a SHA-256 in hexadecimal digits."""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None


def moment(timestamp: str) -> datetime.datetime:
    """Parse a timestamp of a record. Raises ValueError."""
    time = datetime.datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%SZ")
    return time.replace(tzinfo=datetime.timezone.utc)


def format_time(seconds: float) -> str:
    """Format seconds since 1970 as a timestamp of a record."""
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def serialize(record: BackupRecord, label: str = "the new record") -> bytes:
    """Return the content of record.json. Raises BadAnswer for a record that `parse` would
    refuse."""
    check(record, label)
    data = as_json(record)
    if len(data) > MAX_BYTES:
        raise BadAnswer(f"{label}: longer than {MAX_BYTES} bytes")
    return data


def as_json(fact: Message) -> bytes:
    """Return a message as the content of a JSON file."""
    return json.dumps(fact.to_answer(), indent=1, sort_keys=True).encode("ascii") + b"\n"


def seal(data: bytes) -> bytes:
    """Return the content of record.sha256, as sha256sum writes it."""
    return f"{hashlib.sha256(data).hexdigest()}  {FILE}\n".encode("ascii")


def parse(data: bytes, label: str, seal_data: bytes | None = None) -> BackupRecord:
    """Parse the content of record.json.

    label: the file, for messages. seal_data: content of record.sha256; None: do not check it.
    Raises BadAnswer with the problem.
    """
    if len(data) > MAX_BYTES:
        raise BadAnswer(f"{label}: longer than {MAX_BYTES} bytes")
    if seal_data is not None and seal_data != seal(data):
        raise BadAnswer(f"{label}: does not match {SEAL}")
    record = BackupRecord.from_answer(load_json(data, label), label)
    check(record, label)
    return record


def load_json(data: bytes, label: str) -> object:
    """Parse untrusted JSON. Raises BadAnswer."""
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadAnswer(f"{label}: not valid JSON") from None
    if isinstance(document, Mapping) and document.get("format", FORMAT) != FORMAT:
        raise BadAnswer(
            f"{label}: unsupported format {short_repr(document['format'])}, expected {FORMAT}"
        )
    return document


def check(record: BackupRecord, label: str) -> None:
    """Raise BadAnswer if a value is not valid in a record."""
    checks = {
        "backup_id": backup_ids.is_backup_id(record.backup_id),
        "guest": _is_guest(record.guest),
        "uuid": is_uuid(record.uuid),
        "taken_at": _is_moment(record.taken_at),
        "requester": _LINE.fullmatch(record.requester),
        "host": _MINION.fullmatch(record.host) and record.host not in (".", ".."),
        "consistency": record.consistency in CONSISTENCIES,
        "qemu_img": _VERSION.fullmatch(record.qemu_img),
        "definition_sha256": is_sha256(record.definition_sha256),
        "finished": record.finished is None or _is_moment(record.finished),
        "skipped": _is_skipped(record.skipped),
        "format": record.format == FORMAT,
    }
    for key, good in checks.items():
        if not good:
            raise BadAnswer(f"{label}: invalid {key} {short_repr(getattr(record, key))}")
    if len(record.disks) > MAX_DISKS:
        raise BadAnswer(f"{label}: more than {MAX_DISKS} disks")
    for disk in record.parts:
        _check_disk(disk, record.backup_id, label)
    if record.state and (record.state.target, record.state.parent) != (STATE, None):
        raise BadAnswer(f"{label}: invalid state {short_repr(record.state.target)}")
    if len({disk.key for disk in record.parts}) > 1:
        raise BadAnswer(f"{label}: disks with different encryption keys")
    # on a case-insensitive file system two disks would share one file
    for target, times in Counter(disk.target.lower() for disk in record.parts).items():
        if times > 1:
            raise BadAnswer(f"{label}: duplicate disk {target}")


def _check_disk(disk: BackupDiskRecord, backup_id: str, label: str) -> None:
    checks = {
        "target": is_target(disk.target),
        "size_bytes": disk.size_bytes > 0,
        "source": _LINE.fullmatch(disk.source),
        "checksums_sha256": is_sha256(disk.checksums_sha256),
        "parent": disk.parent is None
        or (backup_ids.is_backup_id(disk.parent) and _before(disk.parent, backup_id)),
        "reason": _is_reason(disk),
        "checkpoint": disk.checkpoint is None or _CHECKPOINT.fullmatch(disk.checkpoint),
        "key": disk.key is None or key_name(disk.key),
    }
    for key, good in checks.items():
        if not good:
            raise BadAnswer(
                f"{label}: disk {short_repr(disk.target)}: invalid {key} "
                f"{short_repr(getattr(disk, key))}"
            )


def _is_reason(disk: BackupDiskRecord) -> bool:
    """Whether a full backup has a reason, and an increment has none."""
    if disk.reason is None or disk.parent is not None:
        return disk.reason is None and disk.parent is not None
    return _LINE.fullmatch(disk.reason) is not None


def _is_skipped(skipped: Mapping[str, str]) -> bool:
    few = len(skipped) <= 2 * MAX_DISKS
    return few and all(_LINE.fullmatch(text) for pair in skipped.items() for text in pair)


def _before(parent: str, backup_id: str) -> bool:
    """Whether the parent is older than the backup, so that chains have no cycles."""
    return backup_ids.number(parent) < backup_ids.number(backup_id)


def _is_guest(name: str) -> bool:
    try:
        names.existing_guest(name)
    except errors.InvalidInput:
        return False
    return len(name.encode("utf-8", "replace")) <= 255 and _LINE.fullmatch(name) is not None


def _is_moment(timestamp: str) -> bool:
    try:
        return len(timestamp) == 20 and bool(moment(timestamp))
    except ValueError:
        return False
