"""One-time and per-machine certificates for connections between two machines that the master
introduces to each other.

They are not signed by a CA of the cloud, but each by an authority of its own, whose key is
discarded at once, so that it can never sign another one. Each side trusts only the authority that
the master has passed to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from saltvirt import units
from saltvirt.errors import InvalidInput, PkiError
from saltvirt.pki.authority.policy import valid_name
from saltvirt.pki.common import certs, files
from saltvirt.system import atomic_file

AUTHORITY, CERTIFICATE, KEY = "ca-cert.pem", "client-cert.pem", "client-key.pem"
# lifetimes of a pair for one connection and of a machine's own pair
EPHEMERAL_DAYS, PERMANENT_DAYS = 30, 3650
# lifetime of a pair that is not fetched
_UNUSED_LIMIT_S = 86_400
_MAX_BYTES = 8192


@dataclass(frozen=True)
class OwnPair:
    """Three PEM texts. authority: what the other side trusts."""

    authority: str
    certificate: str
    key: str = field(repr=False)


def generate(host: str, purpose: str, days: int = EPHEMERAL_DAYS) -> OwnPair:
    """Generate a pair. host: the name that the other side connects to. purpose: certs.SERVER or
    certs.CLIENT. Raises InvalidInput for a name that no certificate can have."""
    if not valid_name(host):
        raise InvalidInput(
            f"{units.short_repr(host)} is not a DNS name or IP address, so no certificate "
            "can be issued for it"
        )
    now, signing, key = certs.utcnow(), certs.new_key(), certs.new_key()
    name = certs.subject(f"Salt Virt {host}"[:64])
    authority = certs.self_signed(signing, name, days, now)
    leaf = certs.Leaf(certs.subject(host), (host,), purpose, days)
    cert = certs.leaf(key.public_key(), leaf, (authority, signing), now)
    return OwnPair(
        certs.cert_pem(authority).decode(), certs.cert_pem(cert).decode(),
        certs.key_pem(key).decode(),
    )  # fmt: skip


def permanent(folder: str, host: str) -> OwnPair:
    """The machine's own client pair: generated on first use, and renewed when less than a third of
    its lifetime is left. folder: accessible by root only. Raises PkiError."""
    directory = files.folder(folder)
    with files.locked(directory / ".lock"):
        files.sweep(directory)
        pair = _read(directory)
        if pair is None:
            pair = generate(host, certs.CLIENT, PERMANENT_DAYS)
            _write(directory, pair)
        return pair


def ephemeral(folder: str, host: str) -> OwnPair:
    """A client pair for one connection, which is fetched by its authority. Pairs that are not
    fetched within a day are removed by a later call. folder: accessible by root only. Raises
    PkiError."""
    directory, pair = files.folder(folder), generate(host, certs.CLIENT)
    with files.locked(directory / ".lock"):
        for old in directory.iterdir():
            if old.is_dir() and time.time() - old.lstat().st_mtime > _UNUSED_LIMIT_S:
                shutil.rmtree(old, ignore_errors=True)
        _write(files.folder(directory / _digest(pair.authority)), pair)
    return pair


def take(folder: str, authority_pem: object, sender: str) -> OwnPair:
    """Fetch the pair of `ephemeral` with that authority, once. Raises InvalidInput if there is
    none."""
    path = Path(folder) / _digest(authority(authority_pem, sender))
    claimed_path, pair = path.with_suffix(".taken"), None
    with contextlib.suppress(FileNotFoundError):
        atomic_file.rename(path, claimed_path, durable=False)  # one of many callers gets it
        pair = _read(claimed_path)
        shutil.rmtree(claimed_path, ignore_errors=True)
    if pair is None:
        raise InvalidInput(f"{sender} is unknown or was already used: start again")
    return pair


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(folder: Path, pair: OwnPair) -> None:
    texts = (pair.authority, pair.certificate, pair.key)
    names = (AUTHORITY, CERTIFICATE, KEY)
    files.write_all(
        files.NewFile(folder / name, text.encode()) for name, text in zip(names, texts, strict=True)
    )


def _read(folder: Path) -> OwnPair | None:
    """The pair in a folder; None if it is incomplete or expires soon."""
    data = [files.read(folder / name) for name in (AUTHORITY, CERTIFICATE, KEY)]
    try:
        authority, cert = (certs.load_certs(pem)[0] for pem in data[:2])
        key = certs.load_key(data[2])
    except PkiError:
        return None
    fits = certs.belong_together(cert, key) and certs.signed_by(cert, authority)
    if not fits or certs.needs_renewal(cert, certs.utcnow()) or certs.wrong_now(cert):
        return None
    return OwnPair(*((pem or b"").decode() for pem in data))


def authority(text: object, sender: str) -> str:
    """The single CA certificate in a text that another machine sent. sender: for the error.

    Raises InvalidInput.
    """
    try:
        if not isinstance(text, str) or len(text) > _MAX_BYTES:
            raise PkiError("no text")
        [certificate] = certs.load_certs(text.encode())
        if not certs.is_ca(certificate):
            raise PkiError("not a CA certificate")
    except (PkiError, ValueError) as exc:
        raise InvalidInput(f"{sender} is not a single CA certificate ({exc})") from exc
    return certs.cert_pem(certificate).decode()


def trust(folder: str, pair: OwnPair, authority_pem: object, sender: str) -> None:
    """Fill an empty folder with the files that libnbd and QEMU expect of a client that trusts one
    server only.

    folder: accessible by root only. authority_pem: the server's authority. Raises InvalidInput.
    """
    texts = {
        AUTHORITY: authority(authority_pem, sender),
        CERTIFICATE: pair.certificate,
        KEY: pair.key,
    }
    for name, text in texts.items():
        path = os.path.join(folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
