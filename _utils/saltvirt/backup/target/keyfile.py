"""The key of backups that are encrypted: a file of this machine, root's alone. QEMU's tools read it
there; here it is read for the digests of what is encrypted, and told to nobody."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.backup.model import record
from saltvirt.schema import Message
from saltvirt.units import short_repr

FOLDER = "/etc/salt-virt/backup-keys"
# as QEMU's tools know it
ID = "key"
LUKS = "luks"
# 256 bits in base64 have 44: whoever has the backups could try out fewer
MIN_CHARACTERS = 40
_MAX_BYTES = 4096
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_TEXT = re.compile(rb"[\x21-\x7e]+\n?")
_CHECKSUMS, _FINGERPRINT = b"salt-virt: digests of pieces", b"salt-virt: which key"


@dataclass(frozen=True)
class Key(Message):
    """path: of its file. mark: by which it is told from another one of the name."""

    name: str
    path: str
    mark: str

    @property
    def record_name(self) -> str:
        """As a record has it."""
        return f"{self.name}.{self.mark}"

    @property
    def qemu_object(self) -> str:
        """What QEMU's tools are told: where it is, and not what."""
        return f"secret,id={ID},file={self.path}"

    def checksum_key(self) -> bytes:
        """With what the digests of pieces are made: without it they tell nothing of the disk.
        Raises NoKey."""
        return _derive(_read(self.path), _CHECKSUMS)


def load(name: str) -> Key:
    """The key of that name. Raises NoKey where there is none, or others could have read it."""
    if not _NAME.fullmatch(name):
        raise errors.NoKey(f"{short_repr(name)} is no name of a key")
    path = os.path.join(FOLDER, f"{name}.key")
    return Key(name, path, _derive(_read(path), _FINGERPRINT).hex()[:16])


def from_record(record_name: str) -> Key:
    """The key that a record names. Raises NoKey where it is another by now."""
    key = load(record.key_name(record_name) or "")
    if key.record_name != record_name:
        raise errors.NoKey(
            f"{key.path} is another key than that by which the backup was encrypted: bring that "
            "back, under the name that the record has"
        )
    return key


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return hmac.new(secret, purpose, hashlib.sha256).digest()


def _read(path: str) -> bytes:
    folder = os.path.dirname(path)
    try:
        _require_private(os.lstat(folder), folder)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise errors.NoKey(
            f"the key {path} cannot be read: {exc.strerror}. It is brought back, or made for "
            f"a new target: (umask 077; openssl rand -base64 32 > {path})"
        ) from exc
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise errors.NoKey(f"{path} is no file")
        _require_private(status, path)
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES or not _TEXT.fullmatch(data):
        raise errors.NoKey(f"{path} is not one line of letters and digits")
    if len(data.strip()) < MIN_CHARACTERS:
        raise errors.NoKey(
            f"the key in {path} is shorter than {MIN_CHARACTERS} characters and could be "
            "guessed: openssl rand -base64 32 makes one"
        )
    return data


def _require_private(status: os.stat_result, path: str) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise errors.NoKey(f"{path} is not root's alone: chown root {path}; chmod go= {path}")
