"""Encrypt private keys in a pillar, so that one receiver can read them once.

Pillars are stored in caches of the master and shown in logs. The receiver therefore generates a key
for one request; what the master encrypts with it is worthless elsewhere. ECDH on P-256,
HKDF-SHA256, AES-256-GCM.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from saltvirt.errors import InvalidInput, PkiError

if TYPE_CHECKING:
    from collections.abc import Mapping

_POINT = 65  # bytes of an uncompressed point of P-256
_NONCE = 12


def public(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The public half of a key as bytes."""
    return key.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )


class Receiver:
    """The receiver of one request: sends its ``public`` text, and decrypts the answer once."""

    def __init__(self, host: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._host = host
        self.public = base64.b64encode(public(self._key)).decode()

    def open(self, text: str | bytes) -> dict[str, str]:
        """Decrypt the dictionary. Raises PkiError if it was encrypted for another receiver."""
        try:
            data = base64.b64decode(text, validate=True)
            sender_key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), data[:_POINT])
            nonce, body = data[_POINT : _POINT + _NONCE], data[_POINT + _NONCE :]
            secret = self._key.exchange(ec.ECDH(), sender_key)
            secrets: dict[str, str] = json.loads(
                _cipher(secret, self._host).decrypt(nonce, body, None)
            )
            return secrets
        except (binascii.Error, ValueError, TypeError, InvalidTag) as exc:
            raise PkiError(
                "the master's answer was encrypted for another request: it comes from a "
                "cache; do not set pillar_cache on a master that issues certificates"
            ) from exc


def seal(receiver: bytes, host: str, secrets: Mapping[str, str]) -> str:
    """Encrypt a dictionary, so that only the receiver's key decrypts it.

    receiver: its public key. host: authenticated with it. Raises InvalidInput for an invalid key.
    """
    try:
        receiver_key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), receiver)
    except ValueError as exc:
        raise InvalidInput("seal is not a public key") from exc
    key = ec.generate_private_key(ec.SECP256R1())
    nonce = os.urandom(_NONCE)
    body = _cipher(key.exchange(ec.ECDH(), receiver_key), host).encrypt(
        nonce, json.dumps(secrets).encode(), None
    )
    return base64.b64encode(public(key) + nonce + body).decode()


def _cipher(secret: bytes, host: str) -> AESGCM:
    info = b"salt-virt pillar 1 " + host.encode()
    return AESGCM(HKDF(hashes.SHA256(), 32, None, info).derive(secret))
