"""Checksum blocks: ordered, without overlap, and covering the whole disk."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltvirt.backup.model import checksum_blocks
from saltvirt.backup.model.checksum_blocks import ChecksumBlock
from saltvirt.errors import BadAnswer

A = "a" * 64


def read(*found, size=100, whole=True):
    lines = [one if isinstance(one, bytes) else one.line for one in found]
    return list(checksum_blocks.read(lines, size, whole, "it"))


def test_a_whole_disk():
    both = [ChecksumBlock(0, 60, A), checksum_blocks.zeros(60, 40)]
    assert read(*both) == both


def test_an_increment_has_what_changed():
    assert read(ChecksumBlock(10, 5, A), ChecksumBlock(90, 10, A), whole=False)
    assert read(whole=False) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "no entry at offset 0 of 100 bytes"),
        ([ChecksumBlock(0, 99, A)], "no entry at offset 99"),
        ([ChecksumBlock(1, 99, A)], "no entry from 0 to 1"),
        ([ChecksumBlock(0, 10, A), ChecksumBlock(20, 80, A)], "no entry from 10 to 20"),
        ([ChecksumBlock(0, 60, A), ChecksumBlock(50, 50, A)], "the block at 50 overlaps"),
        ([ChecksumBlock(0, 101, A)], "the block at 0 exceeds the disk"),
        ([b"0 100 " + A.encode()], "invalid line"),
        ([b"0 0 " + A.encode() + b"\n"], "invalid line"),
        ([b"00 100 " + A.encode() + b"\n"], "invalid line"),
        ([b"-1 100 " + A.encode() + b"\n"], "invalid line"),
        ([b"9" * 10_000_000], "invalid line"),
        ([b"0 100 ZERO\n"], "invalid line"),
    ],
)
def test_what_is_wrong_is_said(found, words):
    with pytest.raises(BadAnswer, match=words) as raised:
        read(*found)
    assert len(raised.value.text) < 500


def test_no_piece_takes_all_memory():
    with pytest.raises(BadAnswer, match="too long"):
        read(ChecksumBlock(0, 17 * 2**20, A), size=17 * 2**20)
    assert read(ChecksumBlock(0, 16 * 2**20, A), size=16 * 2**20)
    assert read(checksum_blocks.zeros(0, 2**40), size=2**40)


def test_fewer_zeros_than_there_were_are_not_the_same():
    """A file that ends too early reads as nothing."""
    assert checksum_blocks.zeros(0, 10).matches(bytes(10)) is True
    for other in (b"", bytes(9), bytes(11)):
        assert checksum_blocks.zeros(0, 10).matches(other) is False
    assert not checksum_blocks.zeros(0, 10).matches(bytes(9) + b"\1")


def test_of_an_encrypted_disk_a_digest_says_nothing_without_its_key():
    one = checksum_blocks.compute(0, b"secret", b"key")
    assert one.matches(b"secret", b"key") and not one.matches(b"other!", b"key")
    assert not one.matches(b"secret") and not one.matches(b"secret", b"another key")
    assert one.sha256 == hmac.new(b"key", b"secret", hashlib.sha256).hexdigest()


@given(st.binary(min_size=1, max_size=50), st.integers(0, 49))
def test_any_other_bytes_are_seen(data, at):
    at %= len(data)
    other = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    one = checksum_blocks.compute(0, data)
    assert one.matches(data) and not one.matches(other) and not one.matches(data + b"\0")
    assert checksum_blocks.zeros(0, len(data)).matches(bytes(len(data)))
    assert not checksum_blocks.zeros(0, len(data)).matches(data[:at] + b"\1" + data[at + 1 :])
