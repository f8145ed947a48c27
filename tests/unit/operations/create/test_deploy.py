"""The plan of a deployment, with a cloud of plain data."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet.answer import down
from saltvirt.fleet.keys import fingerprint
from saltvirt.operations.cluster import ha_provider
from saltvirt.operations.core import operation, report
from saltvirt.operations.create import deploy
from saltvirt.operations.create.cluster_snapshot import ClusterSnapshot
from saltvirt.placement import policy
from tests.fakes.fleet import Fleet

HOST = {"cpus": 8, "memory_kib": 16 << 20, "types": ["kvm"], "guests": {}}
HOST["images_folder"] = {"path": "/x", "total_bytes": 1 << 40, "free_bytes": 1 << 40}


class Cloud(Fleet):
    """Hosts that answer, and one that does not."""

    def __init__(self, tmp_path, guests=None, unreachable=()):
        super().__init__(tmp_path, hv1={}, hv2={})
        self.guests, self.down = guests or {}, {*unreachable}

    def said(self, host, fun, kwarg):
        return {**HOST, "guests": self.guests.get(host, {})}


def plan(cloud, guests):
    wishes = [deploy.parse_guest(name, guest, "shop") for name, guest in guests.items()]
    return deploy.plan(cloud, policy.from_config(None, None), wishes, "shop")


def test_each_guest_is_placed_as_if_the_ones_before_it_were_there(tmp_path):
    web = {"mem": 1024, "groups": ["web"], "group_policy": "separate"}
    found = plan(Cloud(tmp_path), {"a": web, "b": web, "c": web})
    assert sorted(found.placed.values()) == ["hv1", "hv2"]
    assert list(found.failed) == ["c"]
    assert "already has" in found.failed["c"]


def test_what_may_be_on_a_silent_host_is_not_made_again(tmp_path):
    cloud = Cloud(tmp_path, unreachable=["hv2"])
    found = plan(cloud, {"plain": {"mem": 512, "seed": False}, "new": {"mem": 512}})
    assert found.placed == {"new": "hv1"}  # no key of it was ever seen here
    assert "it may be on a host that does not answer: hv2: down" in found.failed["plain"]


def test_what_is_there_is_left_and_only_what_the_deployment_made_is_unlisted(tmp_path):
    facts = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}
    cloud = Cloud(
        tmp_path,
        {"hv1": {"a": facts, "mine": {**facts, "deployment": "shop"}},
         "hv2": {"other": facts, "theirs": {**facts, "deployment": "b"}}},
    )  # fmt: skip
    found = plan(cloud, {"a": {"mem": 2048, "cpu": 2, "host": "hv2"}})
    assert found.differences == {
        "a": ["cpu 1, not 2", "memory 1 GiB, not 2 GiB", "host hv1, not hv2"]
    }
    assert found.unlisted == {"mine": "hv1"}
    assert found.changes() == {}


def test_one_that_is_on_two_hosts_is_neither_made_nor_taken_for_there(tmp_path):
    facts = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}
    found = plan(Cloud(tmp_path, {"hv1": {"a": facts}, "hv2": {"a": facts}}), {"a": {"mem": 512}})
    assert found.failed == {"a": "it is on more than one host: hv1, hv2"}
    assert (found.placed, found.existing, found.differences) == ({}, {}, {})


def test_a_host_that_does_not_say_whether_it_is_whole_is_said_of_the_guest_that_stays(tmp_path):
    facts = {"vcpus": 1, "memory_kib": 1 << 19, "state": "shutdown", "creating": True}
    cloud = Cloud(tmp_path, {"hv1": {"a": facts}})

    def silent(host, *_asked, **_options):
        return down(host).get()

    cloud.call = silent
    found = plan(cloud, {"a": {"mem": 512, "start": False}})
    assert (found.existing, found.placed) == ({"a": "hv1"}, {})
    [why] = found.differences["a"]
    assert why.startswith("hv1: down")


def test_a_wrong_word_and_a_size_for_an_unknown_disk_are_refused():
    with pytest.raises(errors.InvalidInput, match="guest a: unknown 'imgae', did you mean 'image'"):
        deploy.parse_guest("a", {"imgae": "x"})
    with pytest.raises(errors.InvalidInput, match="use disks, a list of name and size"):
        deploy.parse_guest("a", {"size": "10G", "disk": "fast"})
    with pytest.raises(errors.InvalidInput):
        deploy.parse_guest("../a", {})


def test_an_empty_list_removes_nothing(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": {"a": {"deployment": "shop"}}})
    one = deploy.Deploy(cloud, policy.from_config(None, None), [], "shop", remove=True)
    with pytest.raises(errors.InvalidInput, match="the list of guests is empty"):
        one.run()
    [why] = one.check().reasons
    assert "the list of guests is empty" in why


def check(cloud, guests):
    wishes = [deploy.parse_guest(name, guest, "shop") for name, guest in guests.items()]
    answer = deploy.Deploy(cloud, policy.from_config(None, None), wishes, "shop").check().answer()
    return answer["shop"], answer.get("retcode")


def test_test_true_answers_as_every_verb_does_and_names_what_would_fail(tmp_path):
    """It answered True where something would be made."""
    facts = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}
    cloud = Cloud(tmp_path, {"hv1": {"a": facts}})
    there, new, big = {"a": {"mem": 1024}}, {"b": {"mem": 512}}, {"c": {"mem": "900G"}}
    found, code = check(cloud, there)
    assert (found["result"], found["comment"], code) == (True, "existing: 1", None)
    found, code = check(cloud, there | new)
    assert (found["result"], list(found["changes"]), code) == (None, ["b"], None)
    found, code = check(cloud, there | new | big)
    assert (found["result"], list(found["changes"]), list(found["failed"]), code) == (
        False, ["b"], ["c"], 1,
    )  # fmt: skip


@pytest.mark.parametrize("groups", ["web eu", "web,eu", ["web", "eu"]])
def test_groups_are_a_list_or_one_text(groups):
    assert deploy.parse_guest("a", {"mem": 1, "groups": groups}).groups == ("web", "eu")


@pytest.mark.parametrize(
    "wrong", [{"groups": 7}, {"groups": [["web"]]}, {"metadata": 7}, {"hypervisor": {}}]
)
def test_what_a_guest_says_of_the_wrong_type_is_named(wrong):
    with pytest.raises(errors.InvalidInput, match=next(iter(wrong))):
        deploy.parse_guest("a", {"mem": 1, **wrong})


# -- what is not listed any more ----------------------------------------------------------

SHOP = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running", "deployment": "shop"}


@pytest.fixture
def purged(monkeypatch):
    """What was purged, as (name, whether its key goes, on which host); of ``busy`` nothing is."""
    asked = []

    class Purge:
        def __init__(self, fleet, name, delete_key, on, deployment, force):
            assert (deployment, force) == ("shop", True)
            self.asked = name, delete_key, on

        def run(self):
            if self.asked[0] == "busy":
                raise errors.OperationFailed("busy is at work")
            asked.append(self.asked)

    monkeypatch.setattr(deploy, "Purge", Purge)
    return asked


def deployed(cloud, guests, **more):
    wishes = [deploy.parse_guest(name, {"mem": 1024}, "shop") for name in guests]
    return deploy.Deploy(cloud, policy.from_config(None, None), wishes, "shop", **more)


def full(tmp_path):
    other = {**SHOP, "deployment": "bar"}
    return Cloud(
        tmp_path,
        {"hv1": {"a": SHOP, "old": SHOP, "busy": SHOP}, "hv2": {"older": SHOP, "theirs": other}},
    )


def test_what_is_not_listed_goes_from_its_host_and_nothing_else(tmp_path, purged):
    accepted = tmp_path / "virt-accepted"
    accepted.mkdir()
    (accepted / "old").write_text(f"hv1\n{fingerprint('')}")
    done = deployed(full(tmp_path), ["a"], remove=True).run()
    assert sorted(purged) == [("old", True, "hv1"), ("older", False, "hv2")]
    assert done.changes == {
        "old": {"old": "hv1", "new": None},
        "older": {"old": "hv2", "new": None},
    }
    assert done.details["failed"] == {"busy": "busy is at work"}
    assert done.details["unlisted"] == {}
    assert done.complete is False
    assert done.comment == (
        "removed: old on hv1, older on hv2; existing: 1; busy failed: busy is at work"
    )


def test_what_goes_is_said_before(tmp_path, purged):
    found = deployed(full(tmp_path), ["a", "busy"], remove=True).check()
    assert (purged, found.reasons, found.nothing) == ([], (), False)
    assert found.comment == "would be removed: old on hv1, older on hv2; existing: 2"
    assert sorted(found.changes) == ["old", "older"]


def test_what_is_not_listed_stays_unless_it_is_to_go(tmp_path, purged):
    one = deployed(full(tmp_path), ["a"])
    for found in (one.check(), one.run()):
        assert found.details["unlisted"] == {"old": "hv1", "busy": "hv1", "older": "hv2"}
        assert found.changes == {}
        assert "not listed: busy on hv1, old on hv1, older on hv2" in found.comment
    assert one.check().nothing is True
    assert one.run().complete is True
    assert purged == []


# -- what is made ----------------------------------------------------------------------------


def pictured(one, found):
    """The picture of a Deploy in which the guests of a DeployPlan are placed."""
    seen = ClusterSnapshot(one.fleet, one.policy)
    for wanted in one.init_requests:
        if wanted.name in found.placed and wanted.name not in found.recreate:
            there = replace(wanted, host=found.placed[wanted.name])
            seen.place_guest(one.fleet, there, there.request())
    return seen


# -- what a guest is described by ---------------------------------------------------------


def test_what_is_not_said_is_as_init_has_it():
    found = deploy.parse_guest("a", {"mem": 64, "image": None, "nic": None})
    assert found.arguments == {
        "seed": True, "install": True, "disk": "default", "nic": "default",
        "metadata": {"deployment": "default"},
    }  # fmt: skip
    assert (found.cpu, found.hypervisor, found.host, found.start) == (1, "kvm", None, True)
    assert (found.wait_for, found.wait_s, found.name_is_free) == (None, 300, False)
    assert deploy.parse_guest("a", {"memory": "1GiB"}).mem == "1GiB"
    assert deploy.parse_guest("a", {"memory": "1GiB", "mem": 64}).mem == 64


def test_what_is_said_is_asked_for():
    said = {
        "mem": 64, "wait": True, "timeout": "7", "start": False, "name_is_free": 1, "host": "hv2",
        "metadata": {"mine": "x"}, "pillar": {"role": "x"}, "disk": "fast",
    }  # fmt: skip
    found = deploy.parse_guest("a", said, "shop")
    assert (found.wait_for, found.wait_s, found.start) == ("minion", 7, False)
    assert (found.name_is_free, found.host, found.pillar) == (True, "hv2", {"role": "x"})
    assert found.arguments["metadata"] == {"mine": "x", "deployment": "shop"}
    assert found.arguments["disk"] == "fast"
    assert deploy.parse_guest("a", {"wait": True, "wait_for": "address"}).wait_for == "address"
    assert said["metadata"] == {"mine": "x"}


@pytest.mark.parametrize("profile", [{}, {"disk": "default"}, {"disk_profile": "default"}])
def test_a_size_is_that_of_the_first_disk(profile):
    found = deploy.parse_guest("a", {"mem": 64, "size": "9GiB", **profile}).arguments
    assert found["disks"] == [{"name": "system", "size": "9GiB"}]
    assert "size" not in found


@pytest.mark.parametrize("more", [{"disks": [{"name": "data", "size": 9}]}, {"disk": "fast"}])
def test_a_size_for_other_disks_is_refused(more):
    with pytest.raises(errors.InvalidInput, match="a: size requires the default disk profile"):
        deploy.parse_guest("a", {"mem": 64, "size": "9GiB", **more})


# -- what is planned ----------------------------------------------------------------------


def test_no_guest_is_named_like_a_hypervisor(tmp_path):
    cloud = Cloud(tmp_path)
    cloud.opts["virt"] = {"hosts": "hv*"}
    found = plan(cloud, {"hv7": {"mem": 64}, "web1": {"mem": 64}})
    assert (list(found.placed), list(found.failed)) == (["web1"], ["hv7"])


class Asked(Cloud):
    """A cloud that says what each guest would take of hv1: too much of its disk."""

    def said(self, host, fun, kwarg):
        needs = {"disk_bytes": 1 << (50 if host == "hv1" else 10)}
        return {**super().said(host, fun, kwarg), **({"guest": needs} if kwarg else {})}


def test_what_each_would_take_of_a_host_is_asked_once_for_all_that_are_alike(tmp_path):
    cloud = Asked(tmp_path)
    guests = {"a": {"mem": 64}, "b": {"mem": 64}, "c": {"mem": 64, "nic": "other"}}
    assert plan(cloud, guests).placed == dict.fromkeys("abc", "hv2")
    nics = {(host, asked["guest"]["nic"]) for host, _, asked in cloud.asked if asked}
    assert nics == {(host, nic) for host in ("hv1", "hv2") for nic in ("default", "other")}
    assert len([asked for _, _, asked in cloud.asked if asked]) == len(nics)


def test_what_differs_is_said_in_words(tmp_path):
    facts = {"vcpus": 1, "memory_kib": 3 << 20, "state": "shutdown", "groups": ["x", "y"]}
    cloud = Cloud(tmp_path, {"hv1": {"a": facts, "b": {**facts, "groups": []}}})
    found = plan(cloud, {"a": {"mem": "2GiB"}, "b": {"mem": "3GiB", "groups": "z", "start": False}})
    assert found.differences == {
        "a": ["memory 3 GiB, not 2 GiB", "groups x y, not none", "state shutdown, not running"],
        "b": ["groups none, not z"],
    }
    exact = Cloud(tmp_path, {"hv1": {"a": {"vcpus": 1, "memory_kib": 1000 << 10}}})
    said = plan(exact, {"a": {"mem": "1010MiB", "start": False}}).differences
    assert said == {"a": ["memory 1000 MiB, not 1010 MiB"]}
    same = {"mem": "3GiB", "groups": "y,x", "start": False, "host": "hv1"}
    assert plan(cloud, {"a": same}).differences == {}


def test_what_is_planned_in_words():
    found = deploy.DeployPlan(
        placed={"b": "hv1", "a": "hv2"}, recreate={"a": "hv1"}, pending_start={"c": "hv3"},
        removed={"d": "hv4"}, failed={"e": "no room"},
    )  # fmt: skip
    assert found.changes() == {
        "a": {"old": "hv1", "new": "hv2"}, "b": {"old": None, "new": "hv1"},
        "c": {"old": "hv3", "new": "hv3"}, "d": {"old": "hv4", "new": None},
    }  # fmt: skip
    half, whole = deploy._PARTIAL, deploy._COMPLETE
    assert found.text(test=True) == (
        f"would be deployed: a on hv2, b on hv1; {half} would be removed before: a on hv1; "
        f"{whole} would be ended: c on hv3; would be removed: d on hv4; e failed: no room"
    )
    assert deploy.DeployPlan().text() == "the list is empty"


# -- what an init that died has left ------------------------------------------------------


@pytest.mark.parametrize("host", [None, "hv2"])
@pytest.mark.parametrize(
    ("what", "words", "changes", "differs"),
    [
        (deploy.interrupted_create.RECREATE, None, "again", {}),
        (deploy.interrupted_create.START, None, "started", {}),
        (None, "somebody is at it", None, {"a": ["cpu 1, not 2", "somebody is at it"]}),
        (None, None, None, {"a": ["cpu 1, not 2"]}),
    ],
)  # fmt: skip
def test_what_was_not_ended_is_made_again_or_started(
    tmp_path, monkeypatch, host, what, words, changes, differs
):
    monkeypatch.setattr(deploy.interrupted_create, "judge", lambda *_asked: (what, words))
    facts = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}
    where = {"host": host} if host else {}
    cloud = Cloud(tmp_path, {"hv1": {"a": facts}})
    found = plan(cloud, {"a": {"mem": 1024, "cpu": 2, **where}})
    again, started = changes == "again", changes == "started"
    assert found.recreate == ({"a": "hv1"} if again else {})
    assert found.placed == ({"a": host or "hv1"} if again else {})
    assert found.pending_start == ({"a": "hv1"} if started else {})
    assert found.existing == ({} if changes else {"a": "hv1"})
    moved = ["host hv1, not hv2"] if host and not changes else []
    said = {name: [lines[0], *moved, *lines[1:]] for name, lines in differs.items()}
    assert found.differences == said


def test_one_that_somebody_keeps_is_left_to_who_keeps_it(tmp_path, monkeypatch):
    """It may be off because it is just being started anew: elsewhere."""
    monkeypatch.setattr(
        deploy.interrupted_create,
        "judge",
        lambda *_asked: (deploy.interrupted_create.RECREATE, None),
    )
    cloud = Cloud(tmp_path, {"hv1": {"a": {"vcpus": 1, "memory_kib": 1 << 20}}})
    ha_provider.store_managed(cloud.opts, {"a": "somebody"})
    found = plan(cloud, {"a": {"mem": 1024, "start": False}})
    assert (found.existing, found.recreate, found.placed) == ({"a": "hv1"}, {}, {})


# -- what is refused, and made ------------------------------------------------------------


class Made:
    """In the place of Init: what it is asked, and what it says."""

    says, asked = {}, []

    def __init__(
        self, _fleet, _policy, init_request, _report, cluster=None, _query=None, provider=None
    ):
        self.init_request, self.cluster, self.ha_options = init_request, cluster, None
        self.ha_result = None

    def _say(self, what, *more):
        self.asked.append((what, self.init_request.name, *more))
        found = self.says.get((what, self.init_request.name))
        if found:
            raise found

    def request(self, _reasons):
        self._say("request")

    def check_key(self, name):
        self._say("key")

    def check_secrets(self, hosts):
        self._say("secrets", *hosts)

    def run(self):
        host = self.cluster.host_of(self.init_request.name)
        self._say("run", host)
        return type("Done", (), {"details": {"host": host}})


@pytest.fixture
def inits(monkeypatch):
    monkeypatch.setattr(Made, "says", {})
    monkeypatch.setattr(Made, "asked", [])
    monkeypatch.setattr(deploy, "Init", Made)
    return Made


@pytest.mark.parametrize("what", ["request", "key", "secrets"])
@pytest.mark.parametrize("again", [True, False])
def test_what_init_would_refuse_has_failed(tmp_path, inits, what, again):
    inits.says = {(what, "a"): errors.Refused("no")}
    one = deployed(Cloud(tmp_path), ["a", "b", "there"])
    found = deploy.DeployPlan(
        placed={"a": "hv1", "b": "hv2"},
        recreate={"a": "hv1"} if again else {},
        existing={"there": "x"},
    )
    one._check_placed(found, None)
    if what == "key" and again:  # it goes with what is half made
        assert (found.placed, found.failed) == ({"a": "hv1", "b": "hv2"}, {})
        assert ("key", "a") not in inits.asked
    else:
        assert (found.placed, found.recreate, list(found.failed)) == ({"b": "hv2"}, {}, ["a"])
    assert not [asked for asked in inits.asked if asked[1] == "there"]
    assert ("secrets", "b", "hv2") in inits.asked
    assert ("key", "b") in inits.asked


@pytest.fixture
def carried(monkeypatch):
    """What is done to guests that an init has left; the fleet of a thread."""
    done = []
    monkeypatch.setattr(
        deploy.interrupted_create, "start",
        lambda _fleet, _policy, wanted, host, *_more: done.append(("start", wanted.name, host)),
    )  # fmt: skip
    monkeypatch.setattr(
        deploy.interrupted_create,
        "remove",
        lambda _fleet, name, host: done.append(("remove", name, host)),
    )
    monkeypatch.setattr(
        deploy, "Fleet", lambda opts, **_more: contextlib.nullcontext(Cloud(opts["pki_dir"]))
    )
    return done


def test_each_is_made_where_it_was_placed_and_one_that_fails_stops_no_other(
    tmp_path, inits, carried
):
    inits.says = {("run", "b"): errors.OperationFailed("broken")}
    one = deployed(Cloud(tmp_path), ["a", "b", "c", "d"], at_once=1)
    found = deploy.DeployPlan(
        placed={"a": "hv1", "b": "hv2", "d": "hv2"}, recreate={"b": "hv1", "d": "hv1"},
        pending_start={"c": "hv3"},
    )  # fmt: skip
    one._carry_out(found, pictured(one, found))
    assert found.placed == {"a": "hv1", "d": "hv2"}
    assert (found.pending_start, found.failed) == ({"c": "hv3"}, {"b": "broken"})
    assert found.recreate == {"d": "hv1"}
    wanted = [("remove", "b", "hv1"), ("remove", "d", "hv1"), ("start", "c", "hv3")]
    assert sorted(carried) == wanted
    assert sorted(inits.asked) == [("run", "a", "hv1"), ("run", "b", "hv2"), ("run", "d", "hv2")]


def test_an_error_that_is_none_of_ours_is_the_failure_of_one_guest(
    tmp_path, inits, carried, caplog
):
    """Else nobody would read what became of the others, which are made all the same."""
    inits.says = {("run", "a"): OSError(28, "No space left on device", "/var/cache/a")}
    one = deployed(Cloud(tmp_path), ["a", "b", "c"], at_once=1)
    found = deploy.DeployPlan(placed={"a": "hv1", "b": "hv2", "c": "hv2"})
    one._carry_out(found, pictured(one, found))
    assert found.placed == {"b": "hv2", "c": "hv2"}
    assert found.failed == {"a": "OSError: [Errno 28] No space left on device: '/var/cache/a'"}
    assert "the deployment of a failed" in caplog.text


def test_a_name_that_differs_by_case_alone_is_no_other_guests(tmp_path):
    cloud = Cloud(tmp_path, {"hv1": {"a2": {"vcpus": 1, "memory_kib": 1024, "state": "running"}}})
    found = plan(cloud, {name: {"mem": 64} for name in ("A2", "b", "B")})
    words = "A2: a2 already exists, on hv1, and host names do not differ by case"
    assert found.failed["A2"] == words
    assert len(found.placed) == 1
    assert found.failed.keys() - {"A2"} <= {"b", "B"}


def test_a_start_that_fails_is_named(tmp_path, inits, carried, monkeypatch):
    def fail(*_asked):
        raise errors.OperationFailed("no start")

    monkeypatch.setattr(deploy.interrupted_create, "start", fail)
    found = deploy.DeployPlan(pending_start={"c": "hv3"})
    one = deployed(Cloud(tmp_path), ["c"])
    one._carry_out(found, pictured(one, found))
    assert (found.pending_start, found.failed) == ({}, {"c": "no start"})


def test_what_is_half_made_goes_before_it_is_made_again(tmp_path, inits, carried):
    one = deployed(Cloud(tmp_path), ["a"])
    found = deploy.DeployPlan(placed={"a": "hv1"}, recreate={"a": "hv3"})
    seen = pictured(one, found)
    seen.refresh_host = lambda _fleet, host, guest_name: carried.append(("look", guest_name, host))
    one._carry_out(found, seen)
    assert carried == [("remove", "a", "hv3"), ("look", "a", "hv3")], "its room is free again"
    assert inits.asked == [("run", "a", "hv1")]
    assert found.placed == {"a": "hv1"}


def test_a_look_at_all_hosts_asks_the_silent_ones_too(tmp_path, inits, carried, monkeypatch):
    """So it is for as many guests as there are hosts to ask."""
    asked, real = [], deploy.create_each
    monkeypatch.setattr(
        deploy, "create_each", lambda *given: asked.append(given[3]) or real(*given)
    )
    one = deployed(Cloud(tmp_path, unreachable=["hv2"]), ["a"])
    found = deploy.DeployPlan(placed={"a": "hv1"})
    one._carry_out(found, pictured(one, found))
    assert asked == [2]


def test_steps_of_many_are_lines(tmp_path):
    class Screen:
        lines = []

        def line(self, text):
            self.lines.append(text)

    report.OneByOne(Screen()).line("a: placed")
    report.OneByOne(None).line("a: placed")
    assert Screen.lines == ["a: placed"]


def test_what_is_planned_is_carried_out(tmp_path, inits, carried):
    done = deployed(Cloud(tmp_path), ["a"]).run()
    assert (list(done.changes), done.complete) == (["a"], True)
    assert [asked[:2] for asked in inits.asked] == [("run", "a")]
    inits.says = {("key", "a"): errors.KeyRefused("known")}
    found = deployed(Cloud(tmp_path), ["a"]).check()
    assert found.reasons == ("a: known",)


# -- what is seen to of those that are there -----------------------------------------------------

THERE = {"vcpus": 1, "memory_kib": 1 << 19, "state": "running"}


def test_a_name_that_somebody_keeps_is_not_made(tmp_path):
    cloud = Cloud(tmp_path)
    ha_provider.store_managed(cloud.opts, {"a": "somebody"})
    found = plan(cloud, {"a": {"mem": 512}, "b": {"mem": 512}})
    assert found.failed["a"].startswith("a is managed by somebody")
    assert found.placed.keys() == {"b"}


@pytest.mark.parametrize("test", [True, False])
def test_what_else_is_wanted_is_done_for_each_that_is_there_and_failed_at_nothing(tmp_path, test):
    cloud, asked = Cloud(tmp_path, {"hv1": dict.fromkeys("abcd", THERE)}), []

    def also(fleet, name, host, asked_for_a_test):
        assert fleet is cloud
        asked.append((name, host, asked_for_a_test))
        if name == "b":
            raise errors.OperationFailed("no target")
        return operation.Result(name, "seen to", {"backup": 1}) if name != "c" else None

    wishes = [deploy.parse_guest(name, {"mem": 512}, "shop") for name in "abcd"]
    settings = [SimpleNamespace(apply=also)]
    one = deploy.Deploy(cloud, policy.from_config(None, None), wishes, "shop", settings=settings)
    done = one.check() if test else one.run()
    assert asked == [(name, "hv1", test) for name in "abcd"]
    assert "b: no target" in (done.reasons if test else [f"b: {done.details['failed']['b']}"])
    kept = deploy.DeployPlan()
    kept.existing, kept.failed = dict.fromkeys("abcd", "hv1"), {"d": "no"}
    kept.ha_results["a"] = operation.Result("a", "kept", {"ha": 1})
    one._apply_settings(kept, test)
    assert kept.ha_results == {"a": operation.Result("a", "kept; seen to", {"ha": 1, "backup": 1})}
    assert kept.failed == {"d": "no", "b": "no target"}
    plain = deploy.Deploy(cloud, policy.from_config(None, None), wishes, "shop")
    assert plain.check().nothing
    unkept = deploy.DeployPlan(ha={"a": True})
    plain._apply_ha(unkept, test)
    assert (unkept.ha_results, unkept.failed) == ({}, {}), "nobody keeps guests here"


class Keeping:
    def __init__(self, done):
        self.done = done

    def run(self):
        return self.done

    check = run


def test_what_changes_nothing_was_not_done():
    changed = operation.Result("a", "kept", {"ha": 1})
    assert deploy._apply_operation(Keeping(changed), False) is changed
    assert deploy._apply_operation(Keeping(operation.Result("a", "kept")), False) is None
    assert deploy._apply_operation(Keeping(operation.Several((changed,))), False) is None
    would = operation.Checked("a", "would be kept", {"ha": 1})
    assert deploy._apply_operation(Keeping(would), True) is would
    assert deploy._apply_operation(Keeping(replace(would, nothing=True)), True) is None
    assert deploy._apply_operation(Keeping(operation.Several((would,))), True) is None
    with pytest.raises(errors.OperationFailed, match=r"^one; two$"):
        deploy._apply_operation(Keeping(replace(would, reasons=("one", "two"))), True)


def test_a_name_is_free_by_true_alone():
    assert deploy.parse_guest("web1", {"name_is_free": "yes", "wait": "false"}).name_is_free is True
    assert deploy.parse_guest("web1", {"name_is_free": "False"}).name_is_free is False
    with pytest.raises(errors.InvalidInput, match="guest web1: wait 'perhaps' is not true or fal"):
        deploy.parse_guest("web1", {"wait": "perhaps"})


def test_a_guest_that_is_not_to_be_started_is_left_off():
    """As a quoted value in an SLS says it."""
    assert deploy.parse_guest("web1", {"start": "False"}).start is False
