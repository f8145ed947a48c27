"""Prove that an answer comes from the requested host, and answers this request.

Salt authenticates neither the return of a job nor its stored copy: any accepted minion can fire an
event with the tag of another minion's return, and Salt accepts returns "of a syndic" from every
minion, with any id. A host therefore signs its answer with the key of its minion, and the master
verifies the signature with the host's accepted key.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from saltvirt import errors

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

# the functions of a host that call another function, once or several times, and sign the return
FUNCTION, EACH = "virt.answer", "virt.answers"
_PAYLOAD, _PROOF = "said", "proof"
_UNPROVEN: Any = {"unsafe_skip_rsa_key_validation": True}
_PLAIN = (type(None), bool, int, float, str)


def _sent(data: Any) -> Any:
    """Return data as Salt's transport delivers it, so that the signature covers what arrives."""
    if isinstance(data, Mapping):
        return {_sent(key): _sent(value) for key, value in data.items()}
    if isinstance(data, (list, tuple, set, frozenset)):
        return [_sent(item) for item in data]
    if isinstance(data, bytes):
        return data.decode(errors="replace")
    if data is None or isinstance(data, (bool, float)):
        return data
    if isinstance(data, int) and -(2**63) <= data < 2**64:
        return data
    return str(data).encode(errors="replace").decode()


def _exact(data: Any) -> list[Any]:
    """Return the canonical form of plain data, with its types. Raises TypeError for other data."""
    if isinstance(data, dict):
        pairs = [[_exact(key), _exact(value)] for key, value in data.items()]
        return ["dict", sorted(pairs, key=lambda pair: json.dumps(pair[0]))]
    if isinstance(data, list):
        return ["list", *map(_exact, data)]
    if type(data) not in _PLAIN:
        raise TypeError(f"not plain data: {type(data)}")
    return [type(data).__name__, data]


def _text(host: str, jid: object, fun: str, returned: Any) -> bytes:
    return json.dumps(_exact([host, str(jid), fun, returned])).encode()


def sign(opts: dict[str, Any], jid: object, fun: str, returned: Any) -> dict[str, Any]:
    """Sign the return of a host.

    opts: the minion's options. returned: ``return`` and ``retcode``. Raises OperationFailed if the
    minion has no key.
    """
    path = os.path.join(opts["pki_dir"], "minion.pem")
    try:
        with open(path, "rb") as file:
            key = _own_key(file.read())
    except (OSError, ValueError, TypeError) as exc:
        raise errors.OperationFailed(f"cannot read the minion's key {path}: {exc}") from exc
    returned = _sent(returned)
    signed = key.sign(_text(opts["id"], jid, fun, returned), padding.PKCS1v15(), hashes.SHA256())
    return {_PAYLOAD: returned, _PROOF: base64.b64encode(signed).decode()}


def _own_key(pem: bytes) -> RSAPrivateKey:
    """Load the minion's key without validating its primes, which would take longer than signing."""
    try:
        return cast("RSAPrivateKey", load_pem_private_key(pem, None, **_UNPROVEN))
    except TypeError:  # cryptography before 39
        return cast("RSAPrivateKey", load_pem_private_key(pem, None))


def verify(
    host: str, jid: object, fun: str, returned: Any, pub_pem: str | None = None
) -> dict[str, Any] | None:
    """Return what the host signed, or None if the signature is not valid.

    returned: the return of the job. pub_pem: the host's key; None for a host below a syndic, whose
    key is not available: it is trusted like the syndic.
    """
    payload = returned.get(_PAYLOAD) if isinstance(returned, dict) else None
    if not isinstance(payload, dict):
        return None
    if pub_pem is None:
        return payload
    try:
        signature = base64.b64decode(str(returned.get(_PROOF)), validate=True)
        # a key of another kind takes other arguments, or does not verify
        key = cast("RSAPublicKey", load_pem_public_key(pub_pem.encode()))
        key.verify(signature, _text(host, jid, fun, payload), padding.PKCS1v15(), hashes.SHA256())
    except (
        InvalidSignature, ValueError, TypeError, AttributeError, binascii.Error, RecursionError,
    ):  # fmt: skip
        return None
    return payload
