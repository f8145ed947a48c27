"""Encryption keys of backups: files on the target host, readable for root only.

QEMU's tools read the files directly. This module reads them only to derive the key of the digests,
and never passes them on.
"""

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
# ID of the key in the options of QEMU's tools
ID = "key"
LUKS = "luks"
# 256 bits in base64 have 44 characters; a shorter key could be guessed by an owner of the backups
MIN_CHARACTERS = 40
_MAX_BYTES = 4096
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_TEXT = re.compile(rb"[\x21-\x7e]+\n?")
_CHECKSUMS, _FINGERPRINT = b"salt-virt: digests of pieces", b"salt-virt: which key"


@dataclass(frozen=True)
class Key(Message):
    """path: of its file. fingerprint: distinguishes keys of the same name."""

    name: str
    path: str
    fingerprint: str

    @property
    def record_name(self) -> str:
        """Name and fingerprint, as in a record."""
        return f"{self.name}.{self.fingerprint}"

    @property
    def qemu_object(self) -> str:
        """QEMU's object for the key, which contains its path only."""
        return f"secret,id={ID},file={self.path}"

    def checksum_key(self) -> bytes:
        """Key of the HMAC for checksum blocks, so that the digests reveal nothing about the
        content. Raises NoKey."""
        return _derive(_read(self.path), _CHECKSUMS)


def load(name: str) -> Key:
    """Load the key with this name. Raises NoKey if it is missing or readable for other users."""
    if not _NAME.fullmatch(name):
        raise errors.NoKey(f"{short_repr(name)} is not a valid key name")
    path = os.path.join(FOLDER, f"{name}.key")
    return Key(name, path, _derive(_read(path), _FINGERPRINT).hex()[:16])


def from_record(record_name: str) -> Key:
    """Load the key that a record names. Raises NoKey if the file contains another key."""
    key = load(record.key_name(record_name) or "")
    if key.record_name != record_name:
        raise errors.NoKey(
            f"{key.path} is not the key that this backup was encrypted with; restore the "
            "original key file"
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
            f"cannot read the key {path}: {exc.strerror}. Restore it, or for a new target create "
            f"it: (umask 077; openssl rand -base64 32 > {path})"
        ) from exc
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise errors.NoKey(f"{path} is not a file")
        _require_private(status, path)
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES or not _TEXT.fullmatch(data):
        raise errors.NoKey(f"{path} must contain one line of printable characters")
    if len(data.strip()) < MIN_CHARACTERS:
        raise errors.NoKey(
            f"the key in {path} is shorter than {MIN_CHARACTERS} characters: create one with "
            "openssl rand -base64 32"
        )
    return data


def _require_private(status: os.stat_result, path: str) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise errors.NoKey(
            f"{path} must be accessible for root only: chown root {path}; chmod go= {path}"
        )
