"""A renamed or copied guest: its key follows, and a failure reverts everything."""

# ruff: noqa: F811
import pytest

pytest.importorskip("salt.key")

from saltvirt import errors
from saltvirt.fleet import authorization
from saltvirt.fleet.answer import Answer, down, lost
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations.cluster import failover_capacity, find, ha_provider, unique
from saltvirt.operations.create.identity import CloneGuest, RenameGuest
from saltvirt.operations.journal import intent_log, location_cache, lock
from tests.functional.fleet.test_keys import events, opts, pairs, store  # noqa: F401
from tests.functional.fleet.test_trust import Host, cloud  # noqa: F401

pytestmark = pytest.mark.parametrize("opts", ["this Salt"], indirect=True)


class Report:
    def __init__(self):
        self.steps, self.failures = [], []

    def step(self, step, text, **_more):
        self.steps.append((step, text))

    def failed(self, exc):
        self.failures.append(exc.text)

    def host_event(self, tag, data):
        pass


@pytest.fixture
def report():
    return Report()


@pytest.fixture
def named(cloud, store, pairs):
    """The cloud, whose db1 has a key of its own and a pillar."""
    store.accept("db1", pairs[1], host="hv1", pillar={"role": "db"})
    return cloud


def mine(cloud, function):
    """The questions of one function, and whether the host then might hand in a key."""
    return [kwarg for fun, kwarg in cloud.asked if fun == function]


# -- what would be done -------------------------------------------------------------------


@pytest.mark.parametrize("verb", [RenameGuest, CloneGuest])
def test_to_look_changes_nothing_and_asks_the_guests_host(named, report, verb):
    found = verb(named, report, "db1", "web1", {"x": 1}).check()
    assert (found.reasons, found.details, found.nothing) == ((), {"host": "hv1"}, False)
    [asked] = mine(named, verb.call.function)
    expected = {"vm_": "db1", "name": "web1", "x": 1, "test": True}
    assert {key: asked[key] for key in expected} == expected
    assert ("placement" in asked) is (verb is CloneGuest)
    assert named.guests == {"db1": "shutdown"}
    if verb is RenameGuest:
        assert found.changes == {"name": {"old": "db1", "new": "web1"}}
        assert (found.subject, found.comment) == ("db1", "db1 on hv1 would be renamed to web1")
    else:
        assert (found.subject, found.changes) == ("web1", {"created": {}})
        assert found.comment == "db1 would be copied to web1 on hv1"


def test_to_look_tells_no_secret(named, report):
    CloneGuest(named, report, "db1", "web1", {"user_data": "hush", "x": 1}).check()
    assert "hush" not in str(named.asked)


def test_below_a_syndic_only_a_guest_without_a_key_gets_another_name(named, report, monkeypatch):
    monkeypatch.setattr(authorization.syndic, "below", lambda _opts, _host: True)
    [why] = RenameGuest(named, report, "db1", "web1").check().reasons
    assert "hv1 is below a syndic" in why
    assert RenameGuest(named, report, "db1", "web1", {"seed": False}).check().reasons == ()


@pytest.mark.parametrize("verb", [RenameGuest, CloneGuest])
def test_a_name_that_is_taken_is_refused(named, store, pairs, report, verb):
    named.guests["web1"] = "running"
    store.accept("web1", pairs[0])
    found = verb(named, report, "db1", "web1").check()
    assert found.reasons[0] == "web1 already exists, on hv1"
    assert not any("key" in why for why in found.reasons), "it is that guest's"
    asked = len(mine(named, verb.call.function))
    with pytest.raises(errors.AlreadyExists, match="web1 already exists, on hv1"):
        verb(named, report, "db1", "web1").run()
    assert len(mine(named, verb.call.function)) == asked, "a run ends at the first reason"
    with pytest.raises(errors.NotFound, match="no guest 'db2'"):
        verb(named, report, "db2", "web1").run()
    del report.failures[1:]
    assert report.failures == ["web1 already exists, on hv1"]
    del named.guests["web1"]
    with pytest.raises(errors.KeyRefused, match="of a guest on a host not recorded that no"):
        verb(named, report, "db1", "web1").run()
    assert store.accepted("web1")


@pytest.mark.parametrize("verb", [RenameGuest, CloneGuest])
def test_a_guest_that_is_nowhere_and_a_name_that_is_none_are_refused(named, report, verb):
    assert "no guest 'db2' on any hypervisor" in verb(named, report, "db2", "web1").check().reasons
    [why] = verb(named, report, "../x", "web1").check().reasons
    assert "on any hypervisor" not in why, "no host is asked"
    for new in ("../x", "hyper7"):
        [why] = verb(named, report, "db1", new).check().reasons
        assert new in why
        with pytest.raises(errors.InvalidInput):
            verb(named, report, "db1", new).run()
    with pytest.raises(errors.InvalidInput, match="db1 is already its name"):
        verb(named, report, "db1", "db1").run()
    assert named.guests == {"db1": "shutdown"}
    assert mine(named, verb.call.function) == []


@pytest.mark.parametrize("verb", [RenameGuest, CloneGuest])
def test_all_that_is_wrong_with_both_names_is_said(named, report, verb):
    first, second = verb(named, report, "../x", "../y").check().reasons
    assert ("../x" in first, "../y" in second) == (True, True), "as a run says it, in its order"
    ha_provider.store_managed(named.opts, {"db1": "somebody", "web1": "somebody"})
    with lock.guest(named.opts, "db1", "x"), lock.guest(named.opts, "web1", "y"):
        told = verb(named, report, "db1", "web1").check().reasons
    assert [why.split(", process")[0] for why in told[:2]] == ["db1: x", "web1: y"]
    assert [why.split(" by")[0] for why in told[2:]] == ["db1 is managed", "web1 is managed"]
    assert mine(named, verb.call.function) == []


@pytest.mark.parametrize("verb", [RenameGuest, CloneGuest])
@pytest.mark.parametrize("kept", ["db1", "web1"])
def test_a_guest_that_is_kept_and_a_name_of_one_are_left_alone(named, report, verb, kept):
    ha_provider.store_managed(named.opts, {kept: "somebody"})
    with pytest.raises(errors.OperationFailed, match=f"{kept} is managed by somebody"):
        verb(named, report, "db1", "web1").run()
    assert named.guests == {"db1": "shutdown"}
    assert mine(named, verb.call.function) == []


@pytest.mark.parametrize("verb", [RenameGuest, CloneGuest])
def test_who_is_silent_may_have_the_name_unless_the_operator_knows(named, report, verb):
    class Two(type(named)):
        def hosts(self, only=None):
            return ["hv1", "hv2"]

        def ask(self, hosts, fun, kwarg=None, **options):
            for host in hosts:
                yield from [down(host)] if host == "hv2" else super().ask([host], fun, kwarg)

    named.__class__ = Two
    [why] = verb(named, report, "db1", "web1").check().reasons
    assert "web1: it may be on a host that does not answer: hv2" in why
    with pytest.raises(errors.OperationFailed, match="it may be on a host"):
        verb(named, report, "db1", "web1").run()
    verb(named, report, "db1", "web1", name_is_free=True).run()
    assert "web1" in named.guests


# -- what is done -------------------------------------------------------------------------


def test_a_new_name_takes_key_and_pillar_along(named, store, pairs, report, monkeypatch):
    location_cache.store(named.opts, "db1", "hv1")
    real, held = named.modules["virt.rename"], []

    def rename(**kwarg):
        if not kwarg.get("test"):
            held.extend(lock.guest_owner(named.opts, name) for name in ("db1", "web1"))
            kept = {"/nas/db1_b": "nfs4", "/nas/db1_a": "used by x"}
            return {
                **real(**kwarg),
                "unrenamed": kept,
                "warnings": ["web1 has a Wi-Fi that is left"],
            }
        return real(**kwarg)

    named.modules["virt.rename"] = rename
    one, long = named.call, []

    def asked_once(host, fun, kwarg=None, **options):
        long.append((fun, (kwarg or {}).get("test", False), options.get("long")))
        return one(host, fun, kwarg, **options)

    monkeypatch.setattr(named, "call", asked_once)
    done = RenameGuest(named, report, "db1", "web1", {"x": 1}).run()
    assert (done.subject, done.comment) == (
        "web1", "db1 on hv1 was renamed to web1; /nas/db1_a keeps its name: used by x; "
        "/nas/db1_b keeps its name: nfs4; web1 has a Wi-Fi that is left",
    )  # fmt: skip
    assert done.changes == {"name": {"old": "db1", "new": "web1"}, "disks": []}
    assert done.details == {"host": "hv1"}
    assert named.guests == {"web1": "shutdown"}
    assert ("virt.rename", False, True) in long, "it takes as long as it takes"
    asked = mine(named, "virt.rename")[-1]
    assert asked == {"vm_": "db1", "name": "web1", "x": 1, "approve_key": True}
    assert all(who.startswith("virt.rename, process") for who in held)
    assert (store.accepted("db1"), store.accepted("web1").split()) == (None, pairs[0].split())
    assert Pillars(named.opts).load("web1", store.accepted) == {"role": "db"}
    assert Pillars(named.opts).load("db1", lambda name: pairs[1]) == {}
    assert location_cache.load(named.opts, "db1") is None
    assert location_cache.unseen_guests(named.opts, "hv1")[0] == ["web1"], (
        "should its host be silent next"
    )
    assert lock.guest_owner(named.opts, "db1") is None
    assert report.failures == []


def test_the_key_of_another_machine_of_the_old_name_stays(cloud, store, pairs, report):
    store.accept("db1", pairs[1], host="hv2")
    RenameGuest(cloud, report, "db1", "web1").run()
    assert store.accepted("db1")
    [warned] = [text for step, text in report.steps if step == "warning"]
    assert "db1: its key stays: it was accepted for a guest of hv2" in warned


def test_a_guest_that_had_no_key_leaves_no_word_and_no_pillar(cloud, store, pairs, report):
    Pillars(cloud.opts).store("db1", pairs[1], {"role": "db"})
    RenameGuest(cloud, report, "db1", "web1").run()
    assert [text for step, text in report.steps if step == "warning"] == []
    assert list(Pillars(cloud.opts).orphans(store.accepted)) == []


def test_an_answer_for_another_guest_undoes_it(named, report):
    real = named.modules["virt.rename"]

    def rename(**kwarg):
        done = real(**kwarg)
        return done if kwarg.get("test") or kwarg["name"] == "db1" else {**done, "name": "x"}

    named.modules["virt.rename"] = rename
    with pytest.raises(errors.OperationFailed, match="asked for web1 and answered for 'x'"):
        RenameGuest(named, report, "db1", "web1").run()
    assert named.guests == {"db1": "shutdown"}


def test_a_guest_without_a_minion_keeps_what_the_master_has(named, store, report):
    real = named.make
    named.make = lambda name, **more: {**real(name, **more), "pub_key": None}
    permitted = []
    inner = named.modules["virt.rename"]

    def rename(**kwarg):
        permitted.append(list(authorization.Authorizations(named.opts).hosts()))
        return inner(**kwarg)

    named.modules["virt.rename"] = rename
    RenameGuest(named, report, "db1", "web1", {"seed": False}).run()
    assert permitted[-1] == [], "nobody may hand in a key"
    assert store.accepted("db1")
    assert store.accepted("web1") is None


def test_with_a_minion_a_key_may_come_in_as_long_as_it_is_made(named, report):
    permitted, inner = [], named.modules["virt.rename"]

    def rename(**kwarg):
        permitted.append(list(authorization.Authorizations(named.opts).hosts()))
        return inner(**kwarg)

    named.modules["virt.rename"] = rename
    RenameGuest(named, report, "db1", "web1", {"seed": True}).run()
    assert permitted[-1] == ["hv1"]
    found = authorization.Authorizations(named.opts)
    assert not any(found.revoke("hv1", name) for name in ("db1", "web1"))


@pytest.mark.parametrize("when", ["another one too", "not started", "not there"])
def test_what_fails_has_its_old_name_and_key_again(named, store, pairs, report, monkeypatch, when):
    if when == "another one too":
        words = "web1 was made on hv0, too"

        def resolve(*_args, **_more):
            raise errors.AlreadyExists(words)

        monkeypatch.setattr(unique, "resolve", resolve)
    else:
        states = iter([{"db1": "shutdown"}, {"web1": "shutdown"}, {"web1": "shutdown"},
                       {"web1": "x", "db1": "x"} if when == "not started" else {}])  # fmt: skip
        words = "hv1: libvirt has no web1 in place of db1"
        named.modules["virt.vm_state"] = lambda vm_=None: next(states)
        monkeypatch.setattr(unique, "resolve", lambda *_args, **_more: next(states))
    with pytest.raises(errors.VirtError) as caught:
        RenameGuest(named, report, "db1", "web1", {"x": 1}).run()
    assert words in caught.value.text
    assert named.guests == {"db1": "shutdown"}
    back = mine(named, "virt.rename")[-1]
    assert back == {"vm_": "web1", "name": "db1", "approve_key": True}
    assert store.accepted("web1") is None
    assert store.accepted("db1").split() == pairs[0].split(), "a new one, for the same guest"
    assert Pillars(named.opts).load("db1", store.accepted) == {"role": "db"}
    assert report.failures == [caught.value.text]
    found = authorization.Authorizations(named.opts)
    assert not any(found.revoke("hv1", name) for name in ("db1", "web1"))


@pytest.mark.parametrize("verb", [RenameGuest, CloneGuest])
def test_what_could_not_be_undone_is_said(named, report, monkeypatch, verb):
    def purge(vm_, test=False, **_more):
        if not test:
            raise errors.OperationFailed("disk busy")
        return {"delete": [], "keep": {}}

    def resolve(*_args, **_more):
        named.answers_as = "other"
        raise errors.AlreadyExists("too late")

    monkeypatch.setattr(unique, "resolve", resolve)
    named.modules["virt.purge"] = purge
    with pytest.raises(errors.AlreadyExists) as caught:
        verb(named, report, "db1", "web1").run()
    why = {
        RenameGuest: "rename web1 back to db1: hv1 was asked for db1 and answered for 'other'",
        CloneGuest: "purge web1 on hv1: hv1: disk busy",
    }[verb]
    assert caught.value.text == f"too late; could not undo: {why}; see salt-run virt.repair"
    assert report.failures == [caught.value.text]


# -- a copy -------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [False, True])
def test_a_copy_has_a_key_of_its_own(named, store, pairs, report, start):
    real, told = named.modules["virt.clone"], []

    def clone(**kwarg):
        told.append(intent_log.load(named.opts, "web1"))
        return real(**kwarg)

    named.modules["virt.clone"] = clone
    done = CloneGuest(named, report, "db1", "web1", {"x": 1}, start=start).run()
    state = "running" if start else "shutdown"
    assert (done.subject, done.details) == ("web1", {"host": "hv1", "state": state})
    assert done.comment == f"web1, a copy of db1, is {state} on hv1"
    assert named.guests == {"db1": "shutdown", "web1": state}
    asked = mine(named, "virt.clone")[-1]
    expected = {"vm_": "db1", "name": "web1", "x": 1, "start": False, "approve_key": True}
    assert {key: asked[key] for key in expected} == expected
    assert "placement" in asked
    assert store.accepted("db1").split() == pairs[1].split()
    assert store.accepted("web1").split() == pairs[0].split()
    assert told[0] is None
    assert (told[-1].host, told[-1].function, told[-1].started) == ("hv1", "virt.clone", False)
    assert intent_log.load(named.opts, "web1") is None


@pytest.mark.parametrize(
    ("start", "options", "runs"),
    [(False, {}, False), (True, {}, True), (False, {"autostart": True}, True)],
)
def test_a_copy_takes_of_what_is_kept_free_when_it_will_run(
    named, report, monkeypatch, start, options, runs
):
    asked = []
    monkeypatch.setattr(
        failover_capacity, "on_current_host", lambda *about: asked.append(about[-1]) or ""
    )
    CloneGuest(named, report, "db1", "web1", options, start=start).check()
    assert asked == [runs]


def test_it_may_have_run_from_when_it_is_started(named, report):
    real, told = named.ask, []

    def ask(hosts, fun, *more, **options):
        if fun == "virt.power":
            told.append(intent_log.load(named.opts, "web1").started)
        return real(hosts, fun, *more, **options)

    named.ask = ask
    CloneGuest(named, report, "db1", "web1", start=True).run()
    assert told == [True]


@pytest.mark.parametrize("when", ["its key", "another one too"])
def test_a_copy_that_fails_is_purged_and_its_key_goes(named, store, report, monkeypatch, when):
    if when == "its key":
        named.answers_as = "other"
    else:

        def resolve(*_args, **_more):
            raise errors.AlreadyExists("web1 was made on hv0, too")

        monkeypatch.setattr(unique, "resolve", resolve)
    with pytest.raises(errors.VirtError, match=r"answered for 'other'|made on hv0, too") as caught:
        CloneGuest(named, report, "db1", "web1", start=True).run()
    assert named.guests == {"db1": "shutdown"}
    assert store.accepted("web1") is None
    assert store.accepted("db1")
    assert intent_log.load(named.opts, "web1") is None
    assert report.failures == [caught.value.text]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (down("hv1"), errors.OperationFailed, r"hv1: down: .*; nothing was created"),
        (lost("hv1"), errors.ConnectionFailed, r"may be creating web1.*virt.repair name=web1"),
        (Answer("hv1", error="no room", kind="failed"), errors.OperationFailed, "^hv1: no room"),
    ],
)
def test_a_copy_whose_answer_is_missing(named, report, monkeypatch, answer, kind, words):
    monkeypatch.setattr(named, "gather", gather(named, answer))
    with pytest.raises(kind, match=words):
        CloneGuest(named, report, "db1", "web1").run()
    assert (intent_log.load(named.opts, "web1") is None) is (kind is errors.OperationFailed)


def gather(cloud, answer):
    real = cloud.gather

    def asked(hosts, fun, kwarg=None, **options):
        if fun == "virt.clone" and not (kwarg or {}).get("test"):
            assert options["long"] is True
            return {"hv1": answer}
        return real(hosts, fun, kwarg, **options)

    return asked


def test_a_secret_is_for_a_host_that_the_master_names(named, report, monkeypatch):
    known, real = [], named.modules["virt.clone"]

    def clone(**kwarg):
        known.append(authorization.Authorizations(named.opts).secret("hv1", "web1"))
        return real(**{key: kwarg[key] for key in ("vm_", "name")}, test=kwarg.get("test", False))

    named.modules["virt.clone"] = clone
    CloneGuest(named, report, "db1", "web1", {"user_data": "hush", "seed": False}).run()
    assert known[-1] == {"user_data": "hush"}
    assert "hush" not in str(named.asked)
    named.opts["virt"] = {"hosts": "G@virt:x"}
    monkeypatch.setattr(find, "locate", None)
    with pytest.raises(errors.InvalidInput, match="only claims to be a hypervisor"):
        CloneGuest(named, report, "db1", "web2", {"user_data": "hush"}).run()
    assert "web2" not in named.guests
