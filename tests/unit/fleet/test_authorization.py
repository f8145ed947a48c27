"""Permissions to submit a key: their validity, and their removal."""

import json
import os
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import authorization
from saltvirt.fleet.authorization import Authorizations
from tests.machine import open_files

NOW = 1_700_000_000


@pytest.fixture
def opts(tmp_path):
    pki = str(tmp_path / "pki")
    return {"pki_dir": pki, "cachedir": str(tmp_path), "virt": {}, "minimum_auth_version": 3}


@pytest.fixture
def clock(monkeypatch):
    """The second that it is for permissions; files have the time of this machine."""
    now = SimpleNamespace(time=lambda: now.second, second=NOW)
    monkeypatch.setattr(authorization, "time", now)
    return now


def there(opts):
    """The files of permissions, and those that are being written or used up."""
    root = os.path.join(opts["pki_dir"], "virtkeys")
    return sorted(
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root)
        for name in names
    )


def put(opts, host, name, text, age_s=0):
    folder = os.path.join(opts["pki_dir"], "virtkeys", host)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    seen = os.stat(path)
    os.utime(path, (seen.st_atime, seen.st_mtime - age_s))
    return path


@pytest.mark.parametrize(
    ("version", "good"),
    [(3, True), (4, True), (2, False), (0, False), ("3", False), (None, False), (True, False)],
)
def test_a_salt_that_does_not_prove_who_asks_gives_no_permission(opts, version, good):
    opts["minimum_auth_version"] = version
    if good:
        Authorizations(opts).grant("hv1", "web1")
        assert there(opts) == ["hv1/web1"]
    else:
        with pytest.raises(errors.Unsupported, match="a minion may ask in the name of another"):
            Authorizations(opts).grant("hv1", "web1")
        assert there(opts) == []


def test_a_salt_without_the_setting_gives_none_either(opts):
    del opts["minimum_auth_version"]
    with pytest.raises(errors.Unsupported, match="minimum_auth_version is 0"):
        authorization.refuse_unknown_senders(opts)


@pytest.mark.parametrize("host", ["", "a/b", "../x", ".x"])
def test_what_is_no_minion_id_names_no_file(opts, host):
    with pytest.raises(errors.InvalidInput, match="is not a minion id"):
        Authorizations(opts).grant(host, "web1")
    assert there(opts) == []


def test_a_permission_says_what_the_guest_gets_and_until_when(opts, clock):
    Authorizations(opts).grant("hv1", "web1", pillar={"a": 1}, replace=True)
    granted = authorization.Permission(NOW + authorization.LIFETIME_S, {"a": 1}, replace=True)
    assert Authorizations(opts).redeem("hv1", "web1") == granted
    assert there(opts) == []
    assert Authorizations(opts).redeem("hv1", "web1") is None
    Authorizations(opts).grant("hv1", "web1")
    assert Authorizations(opts).redeem("hv1", "web1").pillar == {}


@pytest.mark.parametrize(
    ("left_s", "good"),
    [
        (0, True),
        (-1, False),
        (authorization._LONGEST_S, True),
        (authorization._LONGEST_S + 1, False),
    ],
)
def test_a_permission_is_good_until_its_second_and_none_for_ever(opts, clock, left_s, good):
    found = Authorizations(opts)
    found.grant("hv1", "web1", lifetime_s=left_s)
    assert list(found.expired()) == ([] if good else [("hv1", "web1")])
    assert bool(found.redeem("hv1", "web1")) is good
    assert there(opts) == []


LISTED = json.dumps({"expires_s": 1 << 40, "pillar": ["a"]})  # in a long time


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"expires_s": "x"}', "[" * 100000, LISTED])
def test_what_is_no_permission_permits_nothing(opts, text):
    found = Authorizations(opts)
    put(opts, "hv1", "web1", text)
    assert list(found.expired()) == [("hv1", "web1")]
    assert found.secret("hv1", "web1") == {}
    assert found.redeem("hv1", "web1") is None
    assert there(opts) == []


def test_a_permission_is_for_one_guest_of_one_host(opts):
    found = Authorizations(opts)
    found.grant("hv1", "web1")
    assert found.redeem("hv2", "web1") is None
    assert found.redeem("hv1", "web2") is None
    assert found.revoke("hv2", "web1") is False
    assert found.revoke("hv1", "web1") is True
    assert found.redeem("hv1", "web1") is None


def test_an_operations_own_ends_with_it(opts):
    found, before = Authorizations(opts), open_files()
    with found.temporary("hv1", "web1", {"a": 1}, secret={"b": "2"}):
        assert found.secret("hv1", "web1") == {"b": "2"}
        assert found.secret("hv1", "web2") == {}
        assert list(found.expired()) == []
        told = found.redeem("hv1", "web1")
        assert (told.pillar, told.process_bound) == ({"a": 1}, True)
        assert found.secret("hv1", "web1") == {}
    with pytest.raises(ZeroDivisionError), found.temporary("hv1", "web1"):
        raise ZeroDivisionError
    assert there(opts) == []
    assert open_files() == before


def test_an_operations_own_is_good_for_a_day(opts, clock):
    found = Authorizations(opts)
    with found.temporary("hv1", "web1"):
        clock.second = NOW + authorization._LONGEST_S
        assert list(found.expired()) == []
        clock.second += 1
        assert list(found.expired()) == [("hv1", "web1")]


def test_an_operations_own_is_good_also_if_the_clock_is_set_back(opts, clock):
    found = Authorizations(opts)
    with found.temporary("hv1", "web1", secret={"a": 1}):
        clock.second = NOW - 3600
        assert found.secret("hv1", "web1") == {"a": 1}
        assert found.redeem("hv1", "web1").process_bound


def test_what_killed_operations_left_goes_and_nothing_else(opts):
    found, until = Authorizations(opts), 2**40
    with found.temporary("hv1", "held"):
        found.grant("hv1", "granted")
        put(opts, "hv1", "killed", json.dumps({"expires_s": until, "process_bound": True}))
        put(opts, "hv1", "list", "[]")
        put(opts, "hv1", "none", "{")
        put(opts, "hv1", "deep", "[" * 100000)
        put(opts, ".", ".old", "{}", age_s=61)
        put(opts, "hv1", ".new", "{}", age_s=30)
        found.sweep()
        left = ["hv1/.new", "hv1/deep", "hv1/granted", "hv1/held", "hv1/list", "hv1/none"]
        assert there(opts) == left


def test_what_is_being_written_is_there_for_a_minute(opts, clock):
    path = put(opts, "hv1", ".new", "{}")
    for age_s, stays in ((authorization._INSTANT_S, True), (authorization._INSTANT_S + 1, False)):
        os.utime(path, (NOW - age_s, NOW - age_s))
        Authorizations(opts).sweep()
        assert os.path.exists(path) is stays


@pytest.mark.parametrize("verb", ["secret", "redeem", "grant"])
def test_each_use_takes_them_away(opts, verb):
    put(
        opts,
        "hv1",
        "killed",
        json.dumps({"expires_s": 2**40, "process_bound": True, "secret": {"a": 1}}),
    )
    assert getattr(Authorizations(opts), verb)("hv1", "web1") in (None, {})
    assert there(opts) == (["hv1/web1"] if verb == "grant" else [])


def test_the_hosts_that_ever_had_one(opts):
    found = Authorizations(opts)
    assert found.hosts() == set()
    assert list(found.expired()) == []
    found.grant("hv2", "b", lifetime_s=-1)
    found.grant("hv1", "z", lifetime_s=-1)
    found.grant("hv1", "a", lifetime_s=-1)
    put(opts, ".", ".taken", "{}")
    put(opts, "hv1", ".written", "{}")
    assert found.hosts() == {"hv1", "hv2"}
    assert list(found.expired()) == [("hv1", "a"), ("hv1", "z"), ("hv2", "b")]


class Keys:
    """A KeyStore of one key."""

    def __init__(self, key=None):
        self.key = key

    def __call__(self, opts):
        return self

    def accepted(self, name):
        return self.key

    def delete(self, name, key):
        assert self.key == key is not None, "without one it would delete whatever is there by then"
        self.key = None

    def accept(self, name, key, replace, host, pillar):
        self.key = (key, replace, host, pillar)


class Undo:
    def push(self, what, call):
        self.what, self.call = what, call


@pytest.mark.parametrize("before", [None, "old"])
def test_a_key_that_came_in_goes_when_it_was_for_nothing(opts, monkeypatch, before):
    keys, undo = Keys(before), Undo()
    monkeypatch.setattr(authorization, "KeyStore", keys)
    fleet = SimpleNamespace(opts=opts)
    with authorization.key_permission(fleet, "hv1", "web1", undo, secret={"a": 1}):
        assert Authorizations(opts).secret("hv1", "web1") == {"a": 1}
        keys.key = "new"
    assert (keys.key, undo.what) == ("new", "take back the key of web1")
    undo.call()
    assert keys.key is None
    undo.call()
    keys.key = before
    with pytest.raises(ZeroDivisionError), authorization.key_permission(fleet, "hv1", "web1", undo):
        assert Authorizations(opts).secret("hv1", "web1") == {}
        keys.key = "new"
        raise ZeroDivisionError
    assert keys.key is None
    keys.key = before
    with pytest.raises(ZeroDivisionError), authorization.key_permission(fleet, "hv1", "web1", undo):
        raise ZeroDivisionError
    assert keys.key == before, "what was there before stays"
    with pytest.raises(ZeroDivisionError), authorization.key_permission(fleet, "hv1", "web1", undo):
        keys.key = None
        raise ZeroDivisionError


def test_no_permission_is_given_for_a_host_below_a_syndic(opts, monkeypatch):
    monkeypatch.setattr(authorization.syndic, "below", lambda opts, host: host == "hv9")
    authorization.refuse_others(opts, "hv1", "web1")
    with (
        pytest.raises(errors.Unsupported, match="hv9 is below a syndic"),
        authorization.key_permission(SimpleNamespace(opts=opts), "hv9", "web1", Undo()),
    ):
        pass
    assert there(opts) == []


def test_what_comes_in_with_a_permission_is_accepted_as_far_as_it_goes(opts, caplog):
    keys = Keys()
    assert authorization.submit_key(opts, keys, "hv1", "web1", "PEM") is False
    assert (keys.key, "without a permission" in caplog.text) == (None, True)
    Authorizations(opts).grant("hv1", "web1", pillar={"a": 1})
    assert authorization.submit_key(opts, keys, "hv1", "web1", "PEM") is True
    assert keys.key == ("PEM", False, "hv1", {"a": 1})
    Authorizations(opts).grant("hv1", "web1", replace=True)
    assert authorization.submit_key(opts, keys, "hv1", "web1", "PEM") is True
    assert keys.key == ("PEM", True, "hv1", {})
    Authorizations(opts).grant("hv1", "web1")
    opts["minimum_auth_version"] = 2
    assert authorization.submit_key(opts, keys, "hv1", "web1", "PEM2") is False
    assert keys.key[0] == "PEM"
    assert "hv1 submitted a key for 'web1': minimum_auth_version" in caplog.text
