import pytest

from saltvirt import names
from saltvirt.errors import InvalidInput


@pytest.mark.parametrize("name", ["web1", "web-1.example.com", "A_b", "1"])
def test_good_names(name):
    assert names.guest(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "..", ".", "a..b", "a b", "a'b", 'a"b', "-a", "a-", ".a", "a\n", "é", "a" * 201,
     "*", "$(x)", "a;b", "a\\b", "a:b", "retcode"],
)  # fmt: skip
def test_bad_names(name):
    with pytest.raises(InvalidInput, match="cannot be a guest's name"):
        names.guest(name)


def test_a_name_has_200_characters_at_most():
    """Of labels that each are short enough."""
    longest = ".".join(["a" * 49] * 4) + "b"
    assert len(longest) == 200
    assert names.guest(longest) == longest
    with pytest.raises(InvalidInput, match="at most 200 characters"):
        names.guest(longest + "b")


@pytest.mark.parametrize("name", ["web1", "a b", "é", "a'b", "a:b", "-a", "...", 7, "a" * 300])
def test_a_guest_that_is_there_has_any_name_that_libvirt_takes(name):
    assert names.existing_guest(name) == str(name)


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a/b", "a\nb", "retcode"])
def test_what_libvirt_takes_for_no_name_is_refused(name):
    with pytest.raises(InvalidInput, match="cannot be a guest's name"):
        names.existing_guest(name)
