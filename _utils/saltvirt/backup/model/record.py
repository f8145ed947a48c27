"""The record of a backup: what was taken of which guest, when, by whom, how consistent.

``record.json`` is written once, with the backup, and never changed. What is read is taken for what
anybody may have written: each text is of a shape that can do no harm as a part of a path, a line in
a terminal, or a name at libvirt.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from saltvirt import errors, names
from saltvirt.backup.model import backup_ids
from saltvirt.errors import BadAnswer
from saltvirt.schema import Message, optional
from saltvirt.units import short_repr

FORMAT = 1
FILE = "record.json"
SEAL = "record.sha256"
DEFINITION = "domain.xml"
# libvirt calls no disk so
STATE = "state"
# what of that is skipped, as `Record.skipped` names it
FIRMWARE, TPM = "firmware variables", "TPM state"
# no record of a guest with 256 disks is longer
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

    target: libvirt's name of it. size_bytes: as the guest sees it. source: what the definition
    named as its source. pieces_sha256: of the file with the digests of its pieces. parent: the
    backup that its file is an overlay on; None: it was taken whole. reason: why it was.
    checkpoint: libvirt's, from which the next increment can be had; None: of none.
    stored_bytes: the length of its file. key: with which it is encrypted, as `key_name` has it;
    None: it is not.
    """

    target: str
    size_bytes: int
    source: str
    pieces_sha256: str
    parent: str | None = None
    reason: str | None = None
    checkpoint: str | None = None
    stored_bytes: int = 0
    key: str | None = optional(None)

    @property
    def file(self) -> str:
        """The qcow2, in the folder of its backup."""
        return disk_file(self.target)

    @property
    def checksums(self) -> str:
        """The digests of what was read of it, beside it."""
        return checksum_file(self.target)

    @property
    def backing(self) -> tuple[str, str] | None:
        """(name in its qcow2, format) of what that is an overlay on."""
        return None if self.parent is None else (f"../{self.parent}/{self.file}", QCOW2)


@dataclass(frozen=True)
class BackupRecord(Message):
    """A backup.

    when: the moment of the disks, as ``2026-11-23T15:52:20Z``. by: who asked for it. host: where
    the guest was. qemu_img: the version that wrote the disks. definition_sha256: of domain.xml.
    finished: when all of it had been read, by the clock of the machine that has the target.
    skipped: what of the guest is not in it, and why. state: what it has beside the disks,
    an `archive`, as a disk called STATE.
    """

    ident: str
    guest: str
    uuid: str
    when: str
    by: str
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
        """All that has a file: the disks, and the state."""
        return (*self.disks, self.state) if self.state else self.disks

    def disk(self, target: str) -> BackupDiskRecord | None:
        """Its disk of that name, or its state."""
        return next((part for part in self.parts if part.target == target), None)

    @property
    def parents(self) -> set[str]:
        """The backups without which this one cannot be read, the nearest of each disk."""
        return {disk.parent for disk in self.disks if disk.parent is not None}


def disk_file(target: str) -> str:
    """The name of a disk's file in the folder of its backup."""
    return f"{target}.qcow2"


def checksum_file(target: str) -> str:
    """The name of the file with its digests."""
    return f"{target}.pieces"


def is_target(text: object) -> bool:
    """Is it libvirt's name of a disk, as a file's name can begin with it?"""
    return isinstance(text, str) and _TARGET.fullmatch(text) is not None


def is_uuid(text: object) -> bool:
    """Is it a UUID as libvirt writes it?"""
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def key_name(text: str) -> str | None:
    """The name of a key, of ``NAME.MARK`` as a record has it; None where that is none. The mark
    tells it from another key of that name."""
    match = _KEY.fullmatch(text)
    return match[1] if match else None


def is_sha256(text: object) -> bool:
    """Is it a SHA-256, as hexadecimal digits?"""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None


def moment(timestamp: str) -> datetime.datetime:
    """A time of a record. Raises ValueError."""
    time = datetime.datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%SZ")
    return time.replace(tzinfo=datetime.timezone.utc)


def format_time(seconds: float) -> str:
    """A time, in seconds since 1970, as a record has it."""
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def serialize(record: BackupRecord, label: str = "the new record") -> bytes:
    """The bytes of record.json. Raises BadAnswer for what could not be read again."""
    check(record, label)
    data = as_json(record)
    if len(data) > MAX_BYTES:
        raise BadAnswer(f"{label}: it is longer than {MAX_BYTES} bytes")
    return data


def as_json(fact: Message) -> bytes:
    """The bytes of a file that has it."""
    return json.dumps(fact.to_answer(), indent=1, sort_keys=True).encode("ascii") + b"\n"


def seal(data: bytes) -> bytes:
    """What is in record.sha256, as sha256sum writes it."""
    return f"{hashlib.sha256(data).hexdigest()}  {FILE}\n".encode("ascii")


def parse(data: bytes, label: str, seal_data: bytes | None = None) -> BackupRecord:
    """The record in the bytes of a file.

    label: which file. seal_data: what is in record.sha256; None: nobody looks.
    Raises BadAnswer, which says what of it is wrong.
    """
    if len(data) > MAX_BYTES:
        raise BadAnswer(f"{label}: it is longer than {MAX_BYTES} bytes")
    if seal_data is not None and seal_data != seal(data):
        raise BadAnswer(f"{label}: it is not what {SEAL} was made of")
    record = BackupRecord.from_answer(load_json(data, label), label)
    check(record, label)
    return record


def load_json(data: bytes, label: str) -> object:
    """The JSON in a file of anybody's. Raises BadAnswer."""
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadAnswer(f"{label}: it is no JSON") from None
    if isinstance(document, Mapping) and document.get("format", FORMAT) != FORMAT:
        raise BadAnswer(
            f"{label}: it is of format {short_repr(document['format'])}, this reads {FORMAT}"
        )
    return document


def check(record: BackupRecord, label: str) -> None:
    """Raises BadAnswer where something is not as a backup has it."""
    checks = {
        "ident": backup_ids.is_backup_id(record.ident),
        "guest": _is_guest(record.guest),
        "uuid": is_uuid(record.uuid),
        "when": _is_moment(record.when),
        "by": _LINE.fullmatch(record.by),
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
            raise BadAnswer(f"{label}: {key} cannot be {short_repr(getattr(record, key))}")
    if len(record.disks) > MAX_DISKS:
        raise BadAnswer(f"{label}: it has more than {MAX_DISKS} disks")
    for disk in record.parts:
        _check_disk(disk, record.ident, label)
    if record.state and (record.state.target, record.state.parent) != (STATE, None):
        raise BadAnswer(f"{label}: its state cannot be {short_repr(record.state.target)}")
    if len({disk.key for disk in record.parts}) > 1:
        raise BadAnswer(f"{label}: its disks are not encrypted by one key")
    # a file system that knows no letter's case would have one file of two disks
    for target, times in Counter(disk.target.lower() for disk in record.parts).items():
        if times > 1:
            raise BadAnswer(f"{label}: disk {target} is there twice")


def _check_disk(disk: BackupDiskRecord, backup_id: str, label: str) -> None:
    checks = {
        "target": is_target(disk.target),
        "size_bytes": disk.size_bytes > 0,
        "source": _LINE.fullmatch(disk.source),
        "pieces_sha256": is_sha256(disk.pieces_sha256),
        "parent": disk.parent is None
        or (backup_ids.is_backup_id(disk.parent) and _before(disk.parent, backup_id)),
        "reason": _is_reason(disk),
        "checkpoint": disk.checkpoint is None or _CHECKPOINT.fullmatch(disk.checkpoint),
        "key": disk.key is None or key_name(disk.key),
    }
    for key, good in checks.items():
        if not good:
            raise BadAnswer(
                f"{label}: disk {short_repr(disk.target)}: {key} cannot be "
                f"{short_repr(getattr(disk, key))}"
            )


def _is_reason(disk: BackupDiskRecord) -> bool:
    """A whole one has one, an increment none."""
    if disk.reason is None or disk.parent is not None:
        return disk.reason is None and disk.parent is not None
    return _LINE.fullmatch(disk.reason) is not None


def _is_skipped(skipped: Mapping[str, str]) -> bool:
    few = len(skipped) <= 2 * MAX_DISKS
    return few and all(_LINE.fullmatch(text) for pair in skipped.items() for text in pair)


def _before(parent: str, backup_id: str) -> bool:
    """Nothing stands on itself, nor on what came later: so no chain of files is a ring."""
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
