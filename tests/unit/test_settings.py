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
