import pytest

from saltvirt import units
from saltvirt.errors import InvalidInput

HUGE = pytest.param(16**5000, id="huge")  # Python refuses to write it


@pytest.mark.parametrize(
    ("value", "size"),
    [(1, 2**20), ("512", 2**29), ("2G", 2**31), ("1.5 GiB", 3 * 2**29), ("1kb", 1000), ("7b", 7)],
)
def test_parse_bytes(value, size):
    assert units.parse_bytes(value) == size


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, "", "abc", "1 parsec", True, "1e3", "0G", [], "-2G"),
        *("9" * 5000, HUGE, "1." + "0" * 5000),
    ],
)
def test_parse_bytes_refuses(value):
    with pytest.raises(InvalidInput, match="size"):
        units.parse_bytes(value)


@pytest.mark.parametrize("value", [0, -1, "x", 1.5, None, True, "1.0", "", "9" * 5000, HUGE])
def test_parse_count_refuses(value):
    with pytest.raises(InvalidInput, match="cpu"):
        units.parse_count(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (61, "must be a number from 0 to 60, not 61"),
        ("60.5", "must be a number from 0 to 60, not '60.5'"),
        (-1, "must be a number from 0, not -1"),
        pytest.param(16**5000, "must be a number from 0, not a int too large to show", id="huge"),
    ],
)
def test_parse_number_refuses(value, message):
    with pytest.raises(InvalidInput, match=f"^wait {message}$"):
        units.parse_number(value, "wait", 60)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1000 * 2**10, "1000 KiB"),
        (2**30 - 1, "1024 MiB"),
        (2**31, "2 GiB"),
        (999.5 * 2**30, "1000 GiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_human_bytes(size, text):
    assert units.human_bytes(size) == text
