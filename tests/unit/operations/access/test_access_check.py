"""The check that precedes every verb, on a master without hosts: subjects, messages, and the
further calls of the page."""

import inspect
import types

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.access import access_check, owners
from tests.unit.placement.test_choose import guest, host

RIGHTS = {"grants": [
    {"who": "bob", "verbs": ["start", "query"], "guests": ["web*"]},
    {"who": "anna", "verbs": ["console"], "owned": True},
    {"who": "ops", "verbs": ["*"], "everything": True},
    {"who": "eve", "verbs": ["locate"], "everything": True},
]}  # fmt: skip
ID = "00000000-0000-4000-8000-000000000001"


class Fleet:
    """One of no hosts: what was done with it, in order."""

    def __init__(self):
        self.done = []

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.done.append("left")

    def fire_event(self, tag, data):
        self.done.append((tag, data))

    def disconnect(self):
        self.done.append("rests")


@pytest.fixture
def opts(tmp_path):
    return {"virt": {"rights": RIGHTS}, "pki_dir": str(tmp_path / "pki"),
            "cachedir": str(tmp_path / "cache")}  # fmt: skip


@pytest.fixture
def fleet(monkeypatch):
    found = Fleet()
    monkeypatch.setattr(access_check, "Fleet", lambda _opts: found)
    return found


@pytest.fixture
def ask(opts, fleet, monkeypatch):
    """A verb of the runner is called by somebody, or by what is to be raised."""

    def call(who, function, *args, **kwargs):
        def of(_opts, injected=None):
            assert injected == "injected"
            if isinstance(who, Exception):
                raise who
            return who

        monkeypatch.setattr(access_check.requester, "requesting_user", of)
        verb = types.FunctionType(function.__code__, {**function.__globals__, "__opts__": opts})
        verb.__name__ = function.__name__
        verb.__kwdefaults__, verb.__defaults__ = function.__kwdefaults__, function.__defaults__
        given = inspect.signature(verb).bind(*args, **kwargs)
        return access_check.answer(verb, given, "injected")

    return call


def evacuate(host=None):
    return {host: "done"}


def owners_(name=None):
    return {"name": name}


def test_who_cannot_be_known_is_denied_and_that_is_told(ask, fleet):
    with pytest.raises(errors.Denied, match="nobody"):
        ask(errors.Denied("it is nobody"), evacuate, "hv1")
    told = {"user": "", "verb": "evacuate", "guest": "", "message": "it is nobody"}
    assert fleet.done == [(access_check.TAG, told), "left"]


def test_who_has_the_master_is_not_limited_and_without_rights_nobody_is(ask, opts, fleet):
    assert ask(None, evacuate, host="hv1") == {"hv1": "done"}
    opts["virt"] = {}
    assert ask(errors.Denied("it is nobody"), evacuate, "hv1") == {"hv1": "done"}
    assert fleet.done == []


def test_what_is_the_users_everywhere_is_called_when_the_bus_rests(ask, fleet):
    assert ask("ops", evacuate, "hv1") == {"hv1": "done"}
    assert fleet.done == ["rests", "left"]


@pytest.mark.parametrize(
    ("function", "given", "about"),
    [
        (evacuate, {"host": "hv1"}, "hv1"), (evacuate, {}, ""),
        (evacuate, {"host": {"a": 1}}, "{'a': 1}"), (owners_, {"name": "web1"}, "web1"),
    ],
)  # fmt: skip
def test_a_denied_call_is_told_with_what_it_was_about(ask, fleet, function, given, about):
    with pytest.raises(errors.Denied, match=f"bob may not call virt.{function.__name__}"):
        ask("bob", function, **given)
    [(tag, told), left] = fleet.done
    assert (tag, left, told["user"], told["guest"]) == (access_check.TAG, "left", "bob", about)


def test_what_nobody_can_show_is_told_in_words(ask, fleet):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(errors.Denied):
        ask("bob", evacuate, deep)
    assert fleet.done[0][1]["guest"] == "a list too large to show"


def busy(host=None):
    raise errors.Refused(f"{host}: the disk is used by secret-db on hv2")


def broken(host=None):
    raise ZeroDivisionError(f"of secret-db on {host}")


def test_what_fails_for_a_user_names_nobody_elses_guest(ask, caplog):
    busy.__name__ = broken.__name__ = "evacuate"
    with pytest.raises(errors.Refused) as failed:
        ask("ops", busy, "hv1")
    assert failed.value.text == "refused: hv1: the disk is used by somebody"
    assert caplog.text == ""
    with pytest.raises(errors.OperationFailed) as failed:
        ask("ops", broken, "hv1")
    assert failed.value.text.startswith("internal error: the master's log has a traceback")
    assert "of secret-db on hv1" in caplog.text


# -- what the page asks --------------------------------------------------------------------------


def test_whether_there_may_be_a_guest_and_whether_there_is_no_limit(opts):
    def said(ask, verb):
        return [who for who in (None, "bob", "anna", "ops", "eve") if ask(opts, who, verb)]

    assert said(access_check.may_ever, "start") == [None, "bob", "ops"]
    assert said(access_check.may_all, "start") == [None, "ops"]
    assert said(access_check.may_ever, "console") == [None, "anna", "ops"]
    assert said(access_check.may_all, "locate") == [None, "ops", "eve"]
    opts["virt"] = {}
    assert said(access_check.may_ever, "start") == said(access_check.may_all, "start") == [
        None, "bob", "anna", "ops", "eve"]  # fmt: skip


def test_while_the_rights_have_an_error_nobody_has_any(opts):
    opts["virt"] = {"rights": {"grants": 7}}
    for ask in (access_check.may_ever, access_check.may_all):
        assert ask(opts, None, "start") is True
        with pytest.raises(errors.Denied, match="access denied to all users"):
            ask(opts, "ops", "start")


def test_who_was_allowed_is_asked_again_by_the_owner_of_now(opts):
    owners.set_owner(opts, ID, "db1", "anna")

    def still(user, verb, name="db1"):
        return access_check.may_still(opts, user, verb, name, ID)

    assert (still("anna", "console"), still("anna", "start")) == (True, False)
    assert (still("bob", "start"), still("bob", "start", "web1")) == (False, True)
    assert (still("ops", "start"), still("eve", "locate"), still("eve", "start")) == (
        True, True, False)  # fmt: skip
    owners.set_owner(opts, ID, "db1", "bob")
    assert still("anna", "console") is False
    owners._path(opts, ID).write_text("{")
    assert still("ops", "start") is True, "whosever it is"
    with pytest.raises(errors.BadAnswer, match="is damaged"):
        still("bob", "start")
    opts["virt"] = {}
    assert still("anna", "console") is True


def test_what_virt_query_has_told_is_cut_for_whoever_looks(opts):
    told = {
        "hv1": {"freecpu": 1, "secret": 2, "vm_info": {"web1": {}, "db1": {}}},
        "hv2": {"vm_info": {"web1": {}}}, "hv3": {"error": "of db1"}, "retcode": 1,
    }  # fmt: skip
    hosts = [host("hv1", [guest("web1"), guest("db1")])]

    def seen(user):
        return access_check.visible_to(opts, user, told, hosts, {"hv3": "gone"})

    assert seen("bob") == {
        "hv1": {"freecpu": 1, "vm_info": {"web1": {}}}, "hv2": {"vm_info": {}},
        "hv3": {"error": "hv3 does not respond"}, "retcode": 1,
    }  # fmt: skip
    assert seen("eve")["hv1"]["vm_info"] == {}, "another verb is hers everywhere"
    for user in (None, "ops"):
        assert seen(user) is told
    opts["virt"] = {}
    assert seen("bob") is told


def test_for_whom_a_guest_is_being_made(opts):
    def makes():
        return [who for who in (None, "bob", "anna") if access_check.is_making(opts, who, "web9")]

    assert makes() == []
    with owners.making(opts, {"web9": owners.PendingGuest("bob", 1, 1, 1)}):
        assert makes() == ["bob"]
    assert (
        access_check.is_making(opts, "bob", "web9")
        is access_check.is_making(opts, None, "web9")
        is False
    )


def test_who_asks_for_what_is_run_here(opts, monkeypatch):
    monkeypatch.setattr(access_check.requester, "requesting_user", lambda _opts: "bob")
    assert access_check.requesting_user(opts) == "bob"

    def nobody(_opts):
        raise errors.Denied("it is nobody")

    monkeypatch.setattr(access_check.requester, "requesting_user", nobody)
    with pytest.raises(errors.Denied, match="it is nobody"):
        access_check.requesting_user(opts)
    opts["virt"] = {}
    assert access_check.requesting_user(opts) is None
