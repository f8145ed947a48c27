import pytest

from saltvirt import settings
from saltvirt.errors import InvalidInput


def getter(data):
    return lambda key, default=None: data.get(key, default)


def test_both_forms_of_an_option():
    assert settings.option(getter({"virt:images": "/a"}), "images") == "/a"
    assert settings.option(getter({"virt.images": "/b"}), "images") == "/b"
    assert settings.option(getter({"virt.connection.uri": "/b"}), "connection:uri") == "/b"
    assert settings.option(getter({}), "images", "/c") == "/c"
    assert settings.option(getter({"virt:tunnel": False}), "tunnel", True) is False


def test_a_call_overrides_the_configuration():
    get = getter({"virt:connection:uri": "qemu:///system", "virt:connection:auth:username": "salt"})
    found = settings.connection(get, {"connection": "test:///default", "__pub_jid": "1"})
    assert (found.uri, found.username, found.password) == ("test:///default", "salt", None)


def test_a_password_is_not_in_the_repr():
    assert "hush" not in repr(settings.Connection(password="hush"))


def test_a_typo_is_refused():
    with pytest.raises(InvalidInput, match="conection"):
        settings.connection(getter({}), {"conection": "x"})


@pytest.mark.parametrize(
    ("section", "key", "words"),
    [
        ("migration", {"polcy": "safe"}, "virt:migration: unknown setting 'polcy'; did you mean p"),
        ("pki", {"dayz": 3}, "virt:pki: unknown setting 'dayz'; did you mean days?"),
        ("seed", {1: 2}, "virt:seed: unknown setting 1; known: backend, bootstrap"),
        ("connection", {"url": "x"}, "virt:connection: unknown setting 'url'; did you mean uri?"),
    ],
)
def test_a_key_that_nobody_reads_is_refused_in_each_section_of_ours(section, key, words):
    get = getter({f"virt:{section}": key})
    one = next(one for one in settings.KEYS if one.startswith(f"{section}:"))
    with pytest.raises(InvalidInput) as raised:
        settings.option(get, one)
    assert words in str(raised.value)


def test_in_a_masters_configuration_also_below_virt():
    get = settings.of_master({"virt": {"image_copys": 7}})
    with pytest.raises(InvalidInput, match="virt: unknown setting 'image_copys'; did you mean im"):
        settings.integer(get, "image_copies", 4)


def test_a_pillar_may_have_more_below_virt():
    assert settings.option(getter({"virt": {"guests": ["web1"]}}), "images", "/a") == "/a"


@pytest.mark.parametrize("key", settings.KEYS)
def test_a_key_that_is_read_is_known(key):
    whole = value = {}
    for word in f"virt:{key}".split(":"):
        last, value[word] = value, {}
        value = value[word]
    last[word] = "x"
    for other in settings.KEYS:
        if other != key and not other.startswith(f"{key}:"):
            assert settings.option(settings.of_master(whole), other, 7) == 7
    assert settings.option(settings.of_master(whole), key) == "x"
