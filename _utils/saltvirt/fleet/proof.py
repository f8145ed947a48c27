"""That an answer is from the host that was asked, and to this question.

Salt authenticates neither a job's return nor what is written down of it: any accepted minion can
fire an event with the tag of another one's return, and Salt takes returns "of a syndic" from every
minion, with any id in them. So a host signs what it answers, with the key of its minion, and the
master checks that by the key that it accepted for the host.
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

# the functions of a host that call another one, or one several times, and sign what it says
FUNCTION, EACH = "virt.answer", "virt.answers"
_PAYLOAD, _PROOF = "said", "proof"
_UNPROVEN: Any = {"unsafe_skip_rsa_key_validation": True}
_PLAIN = (type(None), bool, int, float, str)


def _sent(data: Any) -> Any:
    """Data as Salt's transport leaves it: what is signed is what arrives."""
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
    """The one way to write such data, its types with it. Raises TypeError for any other."""
    if isinstance(data, dict):
        pairs = [[_exact(key), _exact(value)] for key, value in data.items()]
        return ["dict", sorted(pairs, key=lambda pair: json.dumps(pair[0]))]
    if isinstance(data, list):
        return ["list", *map(_exact, data)]
    if type(data) not in _PLAIN:
        raise TypeError(f"no plain data: {type(data)}")
    return [type(data).__name__, data]


def _text(host: str, jid: object, fun: str, returned: Any) -> bytes:
    return json.dumps(_exact([host, str(jid), fun, returned])).encode()


def sign(opts: dict[str, Any], jid: object, fun: str, returned: Any) -> dict[str, Any]:
    """What a host returns. opts: its minion's options. returned: ``return`` and ``retcode``.
    Raises OperationFailed where the minion has no key."""
    path = os.path.join(opts["pki_dir"], "minion.pem")
    try:
        with open(path, "rb") as file:
            key = _own_key(file.read())
    except (OSError, ValueError, TypeError) as exc:
        raise errors.OperationFailed(f"the minion's key signs what it says: {path}: {exc}") from exc
    returned = _sent(returned)
    signed = key.sign(_text(opts["id"], jid, fun, returned), padding.PKCS1v15(), hashes.SHA256())
    return {_PAYLOAD: returned, _PROOF: base64.b64encode(signed).decode()}


def _own_key(pem: bytes) -> RSAPrivateKey:
    """The minion's key. Salt made it, so its numbers are not proven to be primes once more: that
    takes longer than to sign."""
    try:
        return cast("RSAPrivateKey", load_pem_private_key(pem, None, **_UNPROVEN))
    except TypeError:  # cryptography before 39
        return cast("RSAPrivateKey", load_pem_private_key(pem, None))


def verify(
    host: str, jid: object, fun: str, returned: Any, pub_pem: str | None = None
) -> dict[str, Any] | None:
    """What the host said, None when that is not proven.

    returned: the job's return. pub_pem: the host's key; None, of a host below a syndic, whose key
    is not here: it is believed as the syndic is.
    """
    payload = returned.get(_PAYLOAD) if isinstance(returned, dict) else None
    if not isinstance(payload, dict):
        return None
    if pub_pem is None:
        return payload
    try:
        signature = base64.b64decode(str(returned.get(_PROOF)), validate=True)
        # of another kind it takes other arguments, or does not verify
        key = cast("RSAPublicKey", load_pem_public_key(pub_pem.encode()))
        key.verify(signature, _text(host, jid, fun, payload), padding.PKCS1v15(), hashes.SHA256())
    except (
        InvalidSignature, ValueError, TypeError, AttributeError, binascii.Error, RecursionError,
    ):  # fmt: skip
        return None
    return payload
