"""The requests that a minion may send to the pillar of certificates."""

import base64

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("salt")

from saltvirt.errors import InvalidInput
from saltvirt.pki.authority import request_rules
from saltvirt.pki.authority.request_rules import SigningRequest


def parse(pillar=None, **arguments):
    return request_rules.parse("_", arguments, pillar or {})


def test_who_asks_for_nothing_gets_what_everybody_gets():
    assert parse() == SigningRequest()
    assert parse(seal=None, csr=None, expiration_days=None, country="") == SigningRequest()


@pytest.mark.parametrize("word", ["dry", "subjects", "hosts"])
@pytest.mark.parametrize("value", [True, False, 1, "True", "yes", None, [True]])
def test_only_true_is_true(word, value):
    assert getattr(parse(**{word: value}), word) is (value is True)


@pytest.mark.parametrize("days", [1, 2, 36500, "1", "30"])
def test_whole_days_are_days(days):
    assert parse(expiration_days=days).days == int(days)
    assert parse({"ext_pillar_virt.expiration_days": days}).days == int(days)


@pytest.mark.parametrize("days", [0, -1, 36501, "0", "1.5", 1.0, "", "x", True, False, [], "²"])
def test_what_is_no_number_of_days_is_refused(days):
    with pytest.raises(
        InvalidInput, match="expiration_days must be a whole number of days from 1 to 36500"
    ):
        parse(expiration_days=days)


def test_salts_own_words_are_read_and_ours_come_first():
    pillar = {
        "ext_pillar_virt.country": "DE", "ext_pillar_virt.organization": "theirs", 7: "x",
        "ext_pillar_virt.seal": "x", "ext_pillar_virt.hosts": True, "country": "FR", "state": "x",
    }  # fmt: skip
    found = parse(pillar, organization="ours")
    assert found == SigningRequest(subject={"country": "DE", "organization": "ours"})


@pytest.mark.parametrize("word", ["minion_id", "names", "days", "ca", "ext_pillar_virt.country"])
def test_any_other_word_is_refused(word):
    with pytest.raises(InvalidInput, match=f"unknown argument of the libvirt pillar: {word}"):
        parse(**{word: "x"})


def test_the_words_that_are_refused_are_named_in_so_many_letters():
    with pytest.raises(InvalidInput) as caught:
        parse(**{f"w{number:03}": 1 for number in range(400)})
    assert caught.value.text.startswith("unknown argument of the libvirt pillar: w000, w001, ")
    assert len(caught.value.text) == len("unknown argument of the libvirt pillar: ") + 100


@pytest.mark.parametrize("value", ["x\ny", "x" * 65, "\0"])
def test_a_part_of_the_subject_is_short_and_printable(value):
    with pytest.raises(InvalidInput, match="use 1 to 64 printable characters"):
        parse(organization=value)


def test_a_seal_is_base64():
    assert parse(seal=base64.b64encode(b"key").decode()).seal == b"key"
    for wrong in ("not base64!", "AAAA!", "AA AA", "a", 7, ["x"], "ä"):
        with pytest.raises(InvalidInput, match="seal is not valid base64"):
            parse(seal=wrong)


def test_signing_requests_are_texts_by_use_and_not_long():
    asked = dict.fromkeys(("server", "client", "qemu-server", "qemu-client"), "x" * 8192)
    assert parse(csr=asked).csr == asked
    for wrong in (["server"], "server", {"ca": "x"}, {"server": "x", "ca": "x"}, 7):
        with pytest.raises(InvalidInput, match="csr must map client, qemu-client, qemu-server, se"):
            parse(csr=wrong)
    for wrong in ("x" * 8193, b"x", None, 7):
        with pytest.raises(InvalidInput, match="a signing request must be PEM text"):
            parse(csr={"client": "x", "server": wrong})
