"""Sealed data in a pillar, which only its recipient can open."""

import base64
import json

import pytest

pytest.importorskip("salt")

from cryptography.hazmat.primitives.asymmetric import ec

from saltvirt.errors import InvalidInput, PkiError
from saltvirt.fleet import seal


def test_only_who_asked_opens_what_is_sealed():
    mine, other = seal.Receiver("hv1"), seal.Receiver("hv1")
    public = base64.b64decode(mine.public)
    sealed = seal.seal(public, "hv1", {"key": "s3cret"})
    assert mine.open(sealed) == {"key": "s3cret"}
    assert "s3cret" not in base64.b64decode(sealed).decode("latin-1")
    assert sealed != seal.seal(public, "hv1", {"key": "s3cret"})
    elsewhere = seal.seal(public, "hv2", {"key": "s3cret"})
    data = bytearray(base64.b64decode(sealed))
    data[-1] ^= 1
    for reader, text in (
        (other, sealed), (mine, elsewhere), (mine, base64.b64encode(bytes(data))), (mine, "x"),
        (mine, ""), (mine, f"{sealed}\n!"), (mine, base64.b64encode(bytes(70))), (mine, None),
    ):  # fmt: skip
        with pytest.raises(PkiError, match="was encrypted for another request"):
            reader.open(text)


@pytest.mark.parametrize("key", [b"", b"x" * 65, bytes(65)])
def test_nothing_is_sealed_to_what_is_no_key(key):
    with pytest.raises(InvalidInput, match="seal is not a public key"):
        seal.seal(key, "hv1", {})


def test_a_sealed_text_has_a_key_of_its_own_and_a_nonce_in_front():
    mine = seal.Receiver("hv1")
    data = base64.b64decode(seal.seal(base64.b64decode(mine.public), "hv1", {"a": "b"}))
    assert len(data) == 65 + 12 + len(json.dumps({"a": "b"})) + 16
    assert len(seal.public(ec.generate_private_key(ec.SECP256R1()))) == 65
