"""Keys of a machine's own, for another machine to which the master introduces it: each trusts the
other's certificate because the master told it so, and no other one of the cloud opens anything.

No authority of the cloud signs them: one that is made for a single certificate does, and its key
is forgotten at once. So nobody else can ever have a certificate of it.
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

AUTHORITY, CERTIFICATE, KEY = "ca-cert.pem", "client-cert.pem", "client-key.pem"
# of one that is made for one conversation, and of one that a machine keeps
EPHEMERAL_DAYS, PERMANENT_DAYS = 30, 3650
# of one that waits for its conversation
_UNUSED_LIMIT_S = 86_400
_MAX_BYTES = 8192


@dataclass(frozen=True)
class OwnPair:
    """Three texts in PEM. authority: what the other side trusts."""

    authority: str
    certificate: str
    key: str = field(repr=False)


def generate(host: str, purpose: str, days: int = EPHEMERAL_DAYS) -> OwnPair:
    """A new one. host: the name by which the other side reaches it. purpose: certs.SERVER or
    certs.CLIENT. Raises InvalidInput for a name that no certificate can have."""
    if not valid_name(host):
        raise InvalidInput(
            f"{units.short_repr(host)} is no DNS name or IP address for a certificate"
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
    """The machine's own, as a client: made when it is first asked for, and when less than a third
    of its life is left. folder: root's alone. Raises PkiError."""
    directory = files.folder(folder)
    with files.locked(directory / ".lock"):
        files.sweep(directory)
        pair = _read(directory)
        if pair is None:
            pair = generate(host, certs.CLIENT, PERMANENT_DAYS)
            _write(directory, pair)
        return pair


def ephemeral(folder: str, host: str) -> OwnPair:
    """A client's for one conversation: who made it takes it by its authority. Those that nobody
    took within a day go with the next one. folder: root's alone. Raises PkiError."""
    directory, pair = files.folder(folder), generate(host, certs.CLIENT)
    with files.locked(directory / ".lock"):
        for old in directory.iterdir():
            if old.is_dir() and time.time() - old.lstat().st_mtime > _UNUSED_LIMIT_S:
                shutil.rmtree(old, ignore_errors=True)
        _write(files.folder(directory / _digest(pair.authority)), pair)
    return pair


def take(folder: str, authority_pem: object, sender: str) -> OwnPair:
    """The one of `once` with that authority; nobody else has it then or later. Raises InvalidInput
    where there is none."""
    path = Path(folder) / _digest(authority(authority_pem, sender))
    claimed_path, pair = path.with_suffix(".taken"), None
    with contextlib.suppress(FileNotFoundError):
        path.rename(claimed_path)  # of two who come at once one gets it
        pair = _read(claimed_path)
        shutil.rmtree(claimed_path, ignore_errors=True)
    if pair is None:
        raise InvalidInput(f"{sender} is of no reader that was made here, or was used: begin again")
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
    """What is there; None where it is not whole, or too old."""
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
    """The one certificate of an authority in a text that another machine told. sender: in the
    error.

    Raises InvalidInput.
    """
    try:
        if not isinstance(text, str) or len(text) > _MAX_BYTES:
            raise PkiError("no text")
        [certificate] = certs.load_certs(text.encode())
        if not certs.is_ca(certificate):
            raise PkiError("of no authority")
    except (PkiError, ValueError) as exc:
        raise InvalidInput(f"{sender} is not the certificate of one authority ({exc})") from exc
    return certs.cert_pem(certificate).decode()


def trust(folder: str, pair: OwnPair, authority_pem: object, sender: str) -> None:
    """Makes an empty folder what libnbd and QEMU take: of a client that trusts one server alone.
    folder: root's alone. authority_pem: the server's authority. Raises InvalidInput."""
    texts = {
        AUTHORITY: authority(authority_pem, sender),
        CERTIFICATE: pair.certificate,
        KEY: pair.key,
    }
    for name, text in texts.items():
        path = os.path.join(folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
