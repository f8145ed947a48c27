"""Paths of files in a guest, as users give them."""

import pytest

from saltvirt.backup.model import files
from saltvirt.errors import InvalidInput


@pytest.mark.parametrize(
    ("told", "meant"),
    [("/", "/"), ("//", "/"), ("/etc/", "/etc"), ("/a/../b", "/a/../b"), ("/\udcff", "/\udcff"),
     (f"/{'x' * 4095}", f"/{'x' * 4095}")],
)  # fmt: skip
def test_a_path_in_the_guest(told, meant):
    assert files.parse_path(told) == meant


@pytest.mark.parametrize("length", [4096, 4095 // 2 + 1])
def test_one_that_no_system_takes_is_refused(length):
    """It has bytes and not letters."""
    with pytest.raises(InvalidInput, match=r"^path is longer than 4096 bytes$"):
        files.parse_path(f"/{'ä' * length}")


@pytest.mark.parametrize("told", ["", "etc", None, 7, b"/etc", "/a\0b"])
def test_what_is_no_path(told):
    with pytest.raises(InvalidInput, match="path must be an absolute path in the guest, not "):
        files.parse_path(told)
