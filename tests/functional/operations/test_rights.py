"""The runner's real verbs, called by a limited user in a cloud of two hosts with realistic answers:
a guest of another user is neither visible nor changed, and no verb bypasses the check."""

import json
import multiprocessing
import os
import random
import re
import time
import uuid
from pathlib import Path

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import salt.client.mixins
import salt.config
import salt.runner
import salt.utils.event
import salt.utils.platform

from saltvirt.fleet import target
from saltvirt.operations.access import access_check, bulk, owners
from saltvirt.operations.cluster import unique
from saltvirt.operations.create import wait
from saltvirt.operations.journal import location_cache, lock, slots
from saltvirt.rights import verbs
from saltvirt.system import file_lock
from tests.clock import Clock
from tests.functional.conftest import REPOSITORY
from tests.functional.fleet.test_keys import pairs  # noqa: F401
from tests.functional.operations import test_hostile_answers as fakes

CALLS = int(os.environ.get("RIGHTS_CALLS") or (10_000 if os.environ.get("SLOW") else 2_000))
SEED = os.environ.get("RIGHTS_SEED", "18")
OWNERS = {"bob-1": None, "bobs": "bob", "anna-1": "anna", "secret-db": None, "both": "anna"}
PLACES = {"hv1": {"bob-1": "running", "secret-db": "running", "both": "shutdown"},
          "hv2": {"bobs": "shutdown", "anna-1": "shutdown", "both": "running"}}  # fmt: skip
FOREIGN = {name for name in OWNERS if not name.startswith("bob")}
RIGHTS = {
    "grants": [
        {"who": "bob", "verbs": ["manage"], "guests": ["bob-*"], "images": ["salt://debian.qcow2"]},
        {"who": "*", "verbs": ["use", "purge"], "owned": True},
        {"who": "ops", "verbs": ["*"], "everything": True},
    ]
}  # fmt: skip


def id_of(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


class Host(fakes.Host):
    """One with the guests of this test, each with a UUID of its own."""

    def __init__(self, name, real):
        super().__init__(name, real, False)
        self.guests = dict(PLACES[name])

    def inventory(self, guest=None, **more):
        found = super().inventory(guest=guest, **more)
        for name, about in found["guests"].items():
            about.update(uuid=id_of(name), vcpus=2, deployment="shop")
        return found


class Cloud(fakes.Cloud):
    """The cloud of this test; one for all calls, as the hosts are."""

    def __init__(self, opts, real):
        super().__init__(opts, real)
        self.hosts_ = {name: Host(name, real) for name in PLACES}
        for host in self.hosts_.values():
            host.cloud = self
        self.silent = set()

    def ask(self, hosts, fun, kwarg=None, **options):
        for one in super().ask(hosts, fun, kwarg, **options):
            if one.host not in self.silent:
                yield one
            else:
                yield type(one)(one.host, error="gone", kind="down")

    def places(self):
        return {name: dict(host.guests) for name, host in self.hosts_.items()}


@pytest.fixture(scope="module")
def real():
    return fakes.recorded()


@pytest.fixture
def cloud(real, tmp_path, monkeypatch, pairs):  # noqa: F811
    for folder in ("cache", "sock", "pki/minions", "pki/minions_pre", "pki/minions_rejected",
                   "pki/minions_denied", "pki/virt-accepted"):  # fmt: skip
        (tmp_path / folder).mkdir(parents=True)
    for name in ("hv1", "hv2"):
        (tmp_path / "pki/minions" / name).write_text(pairs[0])
    monkeypatch.setattr(salt.utils.event, "get_event", fakes.Events)
    for waiting in (file_lock, lock, unique, wait):
        monkeypatch.setattr(waiting, "time", Clock(time.time()))
    opts = {
        **salt.config.master_config(None), "__cli": "salt-master", "user": "root",
        "cachedir": str(tmp_path / "cache"), "pki_dir": str(tmp_path / "pki"), "timeout": 1,
        "sock_dir": str(tmp_path / "sock"), "conf_file": str(tmp_path / "master"),
        "runner_dirs": [str(REPOSITORY / "_runners")], "runnerclient_returns": False,
        "virt": {"hosts": "hv*", "rights": RIGHTS, "queue_timeout": 1,
                 "placement": {"reserved_memory_kib": 0, "reserved_disk_bytes": 0}},
    }  # fmt: skip
    found = Cloud(opts, real)
    for module in (access_check, bulk):
        monkeypatch.setattr(module, "Fleet", lambda _opts: found)
    monkeypatch.setattr(target, "connected", lambda _opts, hosts: set(hosts))
    for name, owner in OWNERS.items():
        owners.set_owner(opts, id_of(name), name, owner)
    return found


@pytest.fixture
def runner(cloud, monkeypatch):
    """Calls a verb as Salt's own entry does when a user asks for it over the network; root's call
    is one of the command line. The verbs are those that Salt's loader has."""
    monkeypatch.setattr(salt.utils.platform, "spawning_platform", lambda: True)
    monkeypatch.setattr(salt.runner.RunnerClient, "mminion", None)
    monkeypatch.setattr(salt.runner.RunnerClient, "print_async_event", lambda *_args: None)
    Path(cloud.opts["cachedir"], "proc").mkdir()
    clients = {}

    def close():
        while clients:
            clients.popitem()[1].destroy()

    def client():
        key = json.dumps(cloud.opts["virt"], sort_keys=True)
        if key not in clients:
            close()
            clients[key] = found = salt.runner.RunnerClient(cloud.opts)
            for verb in verbs.RULES:
                names = found.functions[f"virt.{verb}"].func.function.__globals__
                if "Fleet" in names:
                    monkeypatch.setitem(names, "Fleet", lambda _opts: cloud)
        return clients[key]

    def call(user, verb, /, *args, **kwargs):
        fun, low = f"virt.{verb}", {"arg": list(args), "kwarg": kwargs}
        if user == "root":
            told = client().low(fun, {**low, "__user__": user})
        else:
            told = salt.client.mixins.AsyncClientMixin._proc_function(
                instance=client(), opts=cloud.opts, fun=fun, low={"fun": fun, **low}, user=user,
                tag="t", jid="20261123155220000000",
            )  # fmt: skip
        return told["data"]

    yield call
    close()


def comment(told, name):
    return told[name]["comment"]


def test_a_guest_of_others_is_not_there_in_the_very_words(runner, cloud):
    for verb, rule in verbs.RULES.items():
        if rule.scope != verbs.GUEST:
            continue
        more = {"rename": {"new": "bob-9"}, "exec": {"cmd": "uptime"},
                "resize": {"disk": "vda", "size": 9},
                "attach": {"disk": "a", "size": 9}, "detach": {"iso": True},
                }.get(verb, {})  # fmt: skip
        cloud.told.clear()
        foreign = runner("bob", verb, "anna-1", **more)
        gone = runner("bob", verb, "gone-9", **more)
        assert comment(foreign, "anna-1") == "no guest 'anna-1' on any hypervisor"
        assert json.dumps(foreign) == json.dumps(gone).replace("gone-9", "anna-1")
        [(tag, one), (_, other)] = cloud.told
        assert (tag, one["user"], one["verb"]) == ("salt/virt/rights/denied", "bob", verb)
        assert {**one, "guest": "", "message": ""} == {**other, "guest": "", "message": ""}
        assert foreign["retcode"] == 1
    assert cloud.places() == PLACES


def files(cloud):
    return sorted(str(path) for root in ("cachedir", "pki_dir")
                  for path in Path(cloud.opts[root]).rglob("*"))  # fmt: skip


def test_a_denied_call_asks_the_same_and_leaves_no_trace(runner, cloud):
    asked = []
    whole = cloud.ask
    cloud.ask = lambda hosts, fun, kwarg=None, **o: (
        asked.append((tuple(hosts), fun)), whole(hosts, fun, kwarg, **o))[1]  # fmt: skip
    before, each = files(cloud), []
    for name in ("anna-1", "gone-9", "both"):
        asked.clear()
        runner("bob", "force_off", name)
        each.append(list(asked))
    assert each[0] == each[1] == each[2] == [(("hv1", "hv2"), "virt.inventory")]
    assert (files(cloud), cloud.done) == (before, [])


def test_a_silent_host_is_said_of_both_alike(runner, cloud):
    cloud.silent = {"hv2"}
    told = [comment(runner("bob", "start", name), name) for name in ("secret-db", "gone-9")]
    assert told[0].replace("secret-db", "gone-9") == told[1]
    assert "that answered (not: hv2)" in told[1]
    for verb in ("list", "query"):
        assert runner("bob", verb)["hv2"] == {"error": "hv2 does not respond"}


def test_a_guest_is_last_seen_on_a_silent_host_by_those_who_may_see_it(runner, cloud):
    on_hv2 = {**cloud.places()["hv2"], "bob-8": "running", "secret-2": "running"}
    location_cache.store_host(cloud.opts, "hv2", on_hv2)
    cloud.silent = {"hv2"}
    for user, name, seen in (
        ("bob", "bobs", True), ("bob", "bob-8", True), ("bob", "bob-9", False),
        ("bob", "anna-1", False), ("anna", "anna-1", True), ("bob", "secret-2", False),
    ):  # fmt: skip
        told = comment(runner(user, "start", name), name)
        last = f"{name} was last seen on hv2, which does not respond (since "
        unknown = f"no guest {name!r} on any hypervisor that answered (not: hv2)"
        assert told.startswith(last) if seen else told == unknown
    owners.set_owner(cloud.opts, id_of("another"), "bobs", "anna")
    assert "no guest 'bobs'" in comment(runner("bob", "start", "bobs"), "bobs")


def test_listings_have_what_is_seen_alone(runner, cloud):
    assert runner("bob", "list") == {"hv1": {"running": ["bob-1"]}, "hv2": {"shutdown": ["bobs"]}}
    found = runner("bob", "query")
    assert {host: set(one["vm_info"]) for host, one in found.items()} == {
        "hv1": {"bob-1"}, "hv2": {"bobs"},
    }  # fmt: skip
    assert set(runner("ops", "list")["hv1"]["running"]) == {"bob-1", "secret-db"}
    assert runner("eve", "list") == {"hv1": {}, "hv2": {}}


def test_a_deployment_has_the_guests_that_the_user_can_see(runner):
    def guests(user):
        shops = runner(user, "deployments")["deployments"]["deployments"]
        return {*shops["shop"]["guests"]} if shops else set()

    assert guests("bob") == {"bob-1", "bobs"}
    assert guests("ops") == {*OWNERS}
    assert guests("eve") == set()


def test_help_lists_what_the_user_may_call(runner):
    def listed(user):
        return {verb for group in runner(user, "help").values() for verb in group["verbs"]}

    assert listed("bob") == verbs.SETS["manage"] | {"purge"}
    assert listed("ops") == listed("root") == set(verbs.RULES)
    assert runner("bob", "help")["Change guests"]["arguments"]["detach"] == ["iso", "name", "test"]
    assert runner("ops", "help")["Change guests"]["arguments"] == {}


def test_a_user_acts_on_guests_by_name_and_by_owner(runner, cloud):
    assert runner("bob", "start", "bobs")["bobs"]["result"] is True
    assert runner("bob", "force_off", "bob-1")["bob-1"]["result"] is True
    assert cloud.places()["hv1"]["bob-1"] == "shutdown"
    denied = runner("anna", "rename", "anna-1", "bob-7")
    assert comment(denied, "anna-1") == "anna may not call virt.rename"
    assert runner("anna", "locate", "anna-1")["anna-1"]["host"] == "hv2"
    assert cloud.places()["hv2"]["anna-1"] == "shutdown"


def test_a_pattern_selects_what_the_user_sees_and_each_guest_is_checked(runner, cloud):
    told = runner("bob", "force_off", "*", confirm=2)
    assert set(told) == {"bob-1", "bobs", "*"}
    assert cloud.places()["hv1"]["bob-1"] == "shutdown"
    assert cloud.places()["hv2"]["both"] == "running"
    told = runner("bob", "start", ["bob-1", "anna-1"])
    assert comment(told, "anna-1") == "no guest 'anna-1' on any hypervisor"
    assert told["bob-1"]["result"] is True
    assert comment(runner("bob", "start", "anna*"), "anna*") == "no guest matches anna*"
    told = runner("bob", "start", "bob*", overcommit=True)
    assert {comment(told, name) for name in ("bob-1", "bobs")} == {
        "bob may not call virt.start with overcommit"
    }
    assert set(runner("ops", "locate", "*")) == {*OWNERS, "*", "retcode"}  # both is on two hosts


def test_a_selection_drops_no_name_and_no_host_without_a_word(runner, cloud):
    told = runner("root", "locate", "bob*,gone-9")
    assert (told["retcode"], comment(told, "gone-9")) == (1, "no guest 'gone-9' on any hypervisor")
    told = runner("root", "locate", "bob-1,gone-9", host="hv1")
    assert (told["retcode"], "gone-9" in told, told["bob-1"]["result"]) == (1, True, True)
    assert set(runner("root", "locate", "bob-1,bobs", host="hv1")) == {
        "bob-1", "bob-1,bobs host=hv1"
    }  # fmt: skip
    told = runner("bob", "locate", "bob*,anna-1")
    assert comment(told, "anna-1") == "no guest 'anna-1' on any hypervisor"
    owners.set_labels(cloud.opts, id_of("bobs"), "bobs", ["web"])
    assert set(runner("root", "start", label="w*", test=True)) == {"bobs", "label=w*"}
    cloud.silent = {"hv2"}
    told = runner("bob", "locate", "bob*")
    assert (told["retcode"], set(told)) == (1, {"bob-1", "bob*", "retcode"})
    assert "hv2 did not answer: guests there may be missing" in comment(told, "bob*")
    owned = runner("root", "owners")
    assert (owned["retcode"], "did not answer are unknown: hv2" in owned["owners"]["title"]) == (
        1, True,
    )  # fmt: skip
    listed = runner("root", "list")["hv2"]
    assert {"anna-1", "bobs"} <= {*listed["last_seen"]["guests"]}
    for verb in ("set_owner", "label", "start"):
        assert comment(runner("root", verb, "bobs"), "bobs").startswith("bobs was last seen on hv2")
    for names, confirm in (("bob-1", 2), ("bob-1,secret-db", 1)):
        for verb in ("pause", "force_off"):
            told = runner("root", verb, names, confirm=confirm, test=True)
            assert "to confirm, add confirm=" in str(told) and told["retcode"] == 1
    told = runner("root", "force_off", "bob*", stat="off")
    assert "unknown 'stat', did you mean 'state'?" in comment(told, "bob*")


@pytest.mark.parametrize(("verb", "args", "kwargs", "said"), [
    ("evacuate", ["hv1"], {}, "bob may not call virt.evacuate"),
    ("start", ["bob-1"], {"overcommit": True}, "with overcommit"),
    ("start", ["bob-1"], {"host": "hv1"}, "with host"),
    ("rename", ["bob-1", "anna-9"], {}, "for a guest anna-9"),
    ("snapshot", ["bob-1", "../x"], {}, "with snapshot='../x'"),
    ("delete_snapshots", ["bob-1", "s1", "/etc"], {}, "with names='/etc'"),
    ("rename", ["bobs", "bob-9"], {}, "bob may not call virt.rename of bobs"),
    ("rename", ["bob-1", "bob-9"], {"name_is_free": True}, "with name_is_free"),
    ("update", ["bob-1"], {"cpu": {"cpuset": "0"}}, "with cpu="),
    ("update", ["bob-1"], {"disks": [{"name": "x", "source_file": "/etc/shadow"}]}, "with disks"),
    ("update", ["bob-1"], {"boot": {"kernel": "/etc/shadow"}}, "with boot"),
    ("update", ["bob-1"], {"title": "x"}, "with title"),
    ("resize", ["bob-1", "vda", 9], {"overcommit": True}, "with overcommit"),
    ("attach", ["bob-1", "data"], {"source": "/etc/shadow"}, "with source"),
    ("attach", ["bob-1", "data"], {"size": 8, "pool": "p"}, "with pool"),
    ("attach", ["bob-1", "../data"], {"size": 8}, "with disk='../data'"),
    ("attach", ["bob-1"], {"network": "lan"}, "with network"),
    ("attach", ["bob-1"], {"iso": "/srv/anna.iso"}, "with iso='/srv/anna.iso'"),
    ("attach", ["bob-1"], {"iso": "salt://pillar.iso"}, "with iso='salt://pillar.iso'"),
    ("attach", ["bob-1"], {"iso": "https://u:p@h/d.iso?s=1"}, "iso='https://…@h/d.iso?…'"),
    ("detach", ["bob-1", "vda"], {}, "with disk"),
    ("update", ["bobs"], {"cpu": 1}, "bob may not call virt.update of bobs"),
    ("init", ["anna-9", 1, 64, "salt://debian.qcow2"], {}, "for a guest anna-9"),
    ("init", ["bob-9,anna-9", 1, 64, "salt://debian.qcow2"], {}, "for a guest anna-9"),
    ("init", ["bob-9", 1, 64, "/srv/salt-images/anna-1_system.qcow2"], {}, "of /srv/salt-images"),
    ("init", ["bob-9", 1, 64, "pool://p/anna-1"], {}, "of pool://p/anna-1"),
    ("init", ["bob-9", {"maximum": 99}, 64, "salt://debian.qcow2"], {}, "with cpu="),
    ("init", ["bob-9", 1, 64, "salt://debian.qcow2"], {"disk": "big"}, "disk=big"),
    ("init", ["bob-9", 1, 64, "salt://debian.qcow2"], {"disk": [{"a": {}}]}, "with disk="),
    ("init", ["bob-9", 1, 64, "salt://debian.qcow2"], {"disks": []}, "with disks"),
    ("init", ["bob-9", 1, 64, "salt://debian.qcow2"], {"saltenv": "x"}, "with saltenv"),
    ("init", ["bob-9", 1, 64, "salt://debian.qcow2"], {"name_is_free": True}, "name_is_free"),
    ("init", ["bob-9", 1, 64, "salt://debian.qcow2"], {"pillar": {"a": 1}}, "with pillar"),
])  # fmt: skip
def test_what_is_not_granted_is_one_line_and_changes_nothing(
    runner, cloud, verb, args, kwargs, said
):
    before = files(cloud)
    told = runner("bob", verb, *args, **kwargs)
    assert (told["retcode"], said in comment(told, args[0])) == (1, True), told
    assert (cloud.places(), cloud.done) == (PLACES, [])
    assert [path for path in files(cloud) if path not in before and "rights" not in path] == []
    assert cloud.told[-1][0] == "salt/virt/rights/denied"


def test_a_verb_without_a_rule_is_denied(runner, cloud, monkeypatch):
    monkeypatch.delitem(verbs.RULES, "evacuate")
    assert comment(runner("ops", "evacuate", "hv1"), "hv1") == "ops may not call virt.evacuate"
    assert cloud.done == []


def test_what_nobody_can_read_allows_nothing_but_to_those_who_have_the_master(runner, cloud):
    cloud.opts["virt"]["rights"] = {"grants": [{"who": "bob", "verbs": ["fly"]}]}
    assert "virt:rights is invalid" in comment(runner("bob", "locate", "bob-1"), "bob-1")
    assert "'fly' is none of" in comment(runner("root", "owners"), "virt")
    assert runner("root", "locate", "anna-1")["anna-1"]["host"] == "hv2"


def test_without_rights_the_verbs_are_as_they_were(runner, cloud):
    del cloud.opts["virt"]["rights"]
    assert runner("bob", "locate", "anna-1")["anna-1"]["host"] == "hv2"


def deploying(cloud):
    """Two users who may have guests made under the same names."""
    cloud.opts["virt"]["rights"] = {
        "grants": [{"who": ["bob", "eve"], "verbs": ["init"], "guests": ["bob-*"], "images": ["*"]},
                   {"who": "*", "verbs": ["manage"], "owned": True}],
        "quotas": {"bob": {"guests": 2, "vcpus": 4}},
    }  # fmt: skip


def deploy(runner, user, name, **more):
    return runner(user, "init", name, 1, 64, "", seed=False, **more)


def test_what_a_user_deploys_is_his_within_the_quota(runner, cloud):
    deploying(cloud)
    done = deploy(runner, "bob", "bob-8")
    assert done["bob-8"]["result"] is True, done
    assert owners.load(cloud.opts, id_of("bob-8")).owner == "bob"
    assert runner("root", "owners")["owners"]["guests"]["bob-8"] == "bob"
    over = comment(deploy(runner, "bob", "bob-9"), "bob-9")
    assert over == "the quota of bob would be exceeded: guests: 2 of 2 used, 1 more requested"
    assert "bob-9" not in {**cloud.places()["hv1"], **cloud.places()["hv2"]}
    assert "name bob-8 is in use" in comment(deploy(runner, "eve", "bob-8"), "bob-8")
    assert not list(Path(cloud.opts["cachedir"], "virt/rights/making").iterdir())
    cloud.silent = {"hv2"}
    assert "do not answer: hv2" in comment(deploy(runner, "bob", "bob-9"), "bob-9")


def test_what_a_guest_grows_by_counts_for_its_owner(runner, cloud):
    """A guest of fakes.Host has 1 GiB, two vCPUs and a disk of 9 bytes."""
    cloud.opts["virt"]["rights"] = {
        "grants": [{"who": "eve", "verbs": ["manage"], "guests": ["bob*"]},
                   {"who": "*", "verbs": ["manage"], "owned": True}],
        "quotas": {"bob": {"vcpus": 3, "memory": "2G", "disk": "1M"}, "eve": {"vcpus": 5}},
    }  # fmt: skip
    owner = {"bobs": "bob", "bob-1": None}
    for user, name, verb, args, kwargs, said in (
        ("bob", "bobs", "update", [], {"cpu": 4}, "bob would be exceeded: vCPUs: 2 of 3 used, 2"),
        ("bob", "bobs", "update", [], {"mem": "3GiB"}, "exceeded: memory: 1 GiB of 2 GiB used"),
        ("bob", "bobs", "resize", ["vda", 2**21], {}, "exceeded: disk: 9 B of 1 MiB used, 2"),
        ("bob", "bobs", "attach", ["data"], {"size": 2}, "exceeded: disk: 9 B of 1 MiB used, 2"),
        ("eve", "bobs", "update", [], {"cpu": 4}, "the quota of its owner would be exceeded"),
        ("eve", "bob-1", "update", [], {"cpu": 6}, "eve would be exceeded: vCPUs: 0 of 5 used, 6"),
    ):
        told = runner(user, verb, name, *args, **kwargs)
        assert said in comment(told, name) and told["retcode"] == 1, told
        assert not [fun for _, fun, kwarg in cloud.done if not kwarg.get("test")]
        assert ("2 of 3" in str(told)) is (user == "bob" and "cpu" in kwargs)
    for user, name, kwargs in (("bob", "bobs", {"cpu": 3}), ("eve", "bob-1", {"cpu": 5})):
        assert "will change at" in comment(runner(user, "update", name, **kwargs), name), owner
    assert runner("bob", "resize", "bobs", "vda", 90)["bobs"]["result"] is True
    cloud.silent = {"hv1"}
    assert "do not answer: hv1" in comment(runner("bob", "update", "bobs", cpu=3), "bobs")
    told = runner("bob", "update", "bobs", autostart=True)  # it takes nothing
    assert "do not answer" not in comment(told, "bobs"), told


def test_what_is_being_made_counts_and_a_dead_process_does_not(runner, cloud):
    deploying(cloud)
    one = {"bob-5": owners.PendingGuest("bob", 1, 2**20, 0)}
    with owners.making(cloud.opts, one):
        assert "guests: 2 of 2" in comment(deploy(runner, "bob", "bob-9"), "bob-9")
        assert "being created" in comment(deploy(runner, "eve", "bob-5"), "bob-5")
    left = Path(cloud.opts["cachedir"], "virt/rights/making/bob-5")
    left.write_text(json.dumps(one["bob-5"].to_answer()))
    assert deploy(runner, "bob", "bob-9", test=True)["bob-9"]["result"] is None
    assert not left.exists()


def test_of_two_processes_one_gets_the_last_place(runner, cloud, monkeypatch):
    """They begin in one moment, and the guest of neither is there before both have asked."""
    deploying(cloud)
    monkeypatch.setattr(file_lock, "time", time)  # the other one's look takes its time
    cloud.opts["virt"]["queue_timeout"] = 60
    fork = multiprocessing.get_context("fork")
    together, refused, said = fork.Barrier(2), fork.Event(), fork.SimpleQueue()

    def slowly(self, name, **more):
        refused.wait(60)
        return fakes.Host.init(self, name, **more)

    monkeypatch.setattr(Host, "init", slowly)

    def one(name):
        together.wait(60)
        told = deploy(runner, "bob", name)[name]
        if not told["result"]:
            refused.set()
        said.put((told["result"], told["comment"]))

    both = [fork.Process(target=one, args=[name]) for name in ("bob-8", "bob-9")]
    for process in both:
        process.start()
    told = sorted(said.get() for _ in both)
    for process in both:
        process.join()
    assert [result for result, _ in told] == [False, True], told
    assert "guests: 2 of 2 used, 1 more requested" in told[0][1]


@pytest.mark.parametrize("other", ["Bob", "BOB ", "\uff22ob"])
def test_another_spelling_of_a_name_has_no_second_quota(runner, cloud, other):
    """A directory may take them for the same person."""
    deploying(cloud)
    cloud.opts["virt"]["rights"]["grants"][0]["who"] = "*"
    assert deploy(runner, "bob", "bob-8")["bob-8"]["result"] is True
    assert "guests: 2 of 2" in comment(deploy(runner, other, "bob-9"), "bob-9")


def test_who_waits_in_vain_is_not_told_whose_guests_are_before(runner, cloud):
    deploying(cloud)
    cloud.opts["virt"]["inits_at_once"] = 1
    with slots.deploying(cloud.opts, lambda _words: None, "virt.init of secret-db"):
        told = deploy(runner, "bob", "bob-8")
        assert "of a guest, process" in comment(told, "bob-8")
        assert "secret-db" not in json.dumps(told)
        assert "of secret-db, process" in comment(deploy(runner, "root", "x-1"), "x-1")


def test_what_a_label_grants(runner, cloud):
    cloud.opts["virt"]["rights"] = {"grants": [
        {"who": "eve", "verbs": ["use"], "labels": ["web*"]},
        {"who": "*", "verbs": ["use"], "owned": True},
    ]}  # fmt: skip
    assert "no guest" in comment(runner("eve", "locate", "anna-1"), "anna-1")
    test = runner("root", "label", "anna-1", ["web1", 7], test=True)["anna-1"]
    changes = {"labels": {"old": [], "new": ["7", "web1"]}}
    assert (test["result"], test["changes"]) == (None, changes)
    assert "no guest" in comment(runner("eve", "locate", "anna-1"), "anna-1")
    told = runner("root", "label", "anna-1", ["web1", 7])["anna-1"]
    assert (told["result"], told["comment"]) == (True, "anna-1 has the labels 7, web1")
    assert runner("eve", "start", "anna-1")["anna-1"]["result"] is True
    assert runner("eve", "list") == {"hv1": {}, "hv2": {"running": ["anna-1"]}}
    # one does not take away the other
    assert runner("root", "set_owner", "anna-1", "bob")["anna-1"]["result"] is True
    found = runner("root", "owners")["owners"]
    assert (found["guests"]["anna-1"], found["labels"]) == ("bob", {"anna-1": ["7", "web1"]})
    assert runner("root", "label", "anna-1")["anna-1"]["comment"] == "anna-1 has no label"
    assert "no guest" in comment(runner("eve", "locate", "anna-1"), "anna-1")
    assert owners.load(cloud.opts, id_of("anna-1")).owner == "bob"
    assert comment(runner("eve", "label", "bobs", "web1"), "bobs") == "eve may not call virt.label"
    assert "labels must be texts" in comment(runner("root", "label", "bobs", [{}]), "bobs")


def test_who_may_still_by_owner_and_by_label(cloud):
    cloud.opts["virt"]["rights"] = {"grants": [
        {"who": "eve", "verbs": ["use"], "labels": ["web"]},
        {"who": "*", "verbs": ["use"], "owned": True},
    ]}  # fmt: skip
    uuid_ = id_of("anna-1")

    def may():
        return [user for user in ("anna", "bob", "eve")
                if access_check.may_still(cloud.opts, user, "start", "anna-1", uuid_)]  # fmt: skip

    assert may() == ["anna"]
    owners.set_labels(cloud.opts, uuid_, "anna-1", ("web",))
    assert may() == ["anna", "eve"]
    owners.set_owner(cloud.opts, uuid_, "anna-1", None)
    assert may() == ["eve"]


def test_a_record_of_a_former_version_is_read(runner, cloud):
    path = Path(cloud.opts["pki_dir"], "virtowners", id_of("bobs"))
    path.write_text(json.dumps({"owner": "bob", "guest": "bobs"}))
    assert runner("bob", "locate", "bobs")["bobs"]["result"] is True


def test_a_deployment_that_fails_gives_nobody_a_guest(runner, cloud, monkeypatch):
    """Another one may have made a guest of the name meanwhile."""
    deploying(cloud)
    init = Host.init
    # the host has it, and gives no answer that counts
    monkeypatch.setattr(Host, "init", lambda self, name, **more: init(self, name, **more) and None)
    assert deploy(runner, "bob", "bob-8")["bob-8"]["result"] is False
    assert owners.load(cloud.opts, id_of("bob-8")).owner is None


def test_an_owner_is_the_masters_word_and_follows_the_guest(runner, cloud):
    told = runner("root", "set_owner", "secret-db", "bob")
    assert told["secret-db"]["changes"] == {"owner": {"old": None, "new": "bob"}}
    assert runner("bob", "locate", "secret-db")["secret-db"]["result"] is True
    host = cloud.hosts_["hv1"]
    inventory = host.inventory
    host.guests.pop("secret-db")
    host.guests["other-name"] = "running"
    same = lambda **more: _renamed(inventory(**more), "other-name", id_of("secret-db"))  # noqa: E731
    host.inventory = same
    assert runner("bob", "locate", "other-name")["other-name"]["result"] is True
    assert runner("root", "set_owner", "other-name", test=True)["other-name"]["result"] is None
    assert (
        runner("root", "set_owner", "other-name")["other-name"]["comment"]
        == "other-name is without an owner"
    )
    assert "no guest" in comment(runner("bob", "locate", "other-name"), "other-name")
    assert (
        comment(runner("bob", "set_owner", "bobs", "bob"), "bobs")
        == "bob may not call virt.set_owner"
    )


SPELLED = ["{}", "{{{}}}", "urn:uuid:{}"]


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("of", ["anna-1", "secret-db", "both", "gone"])
def test_a_host_does_not_give_a_user_anothers_guest_by_the_uuid_of_a_new_one(
    runner, cloud, of, spelled
):
    """That of a guest of somebody else or of nobody, on this host or another, or of one that is to
    be brought back."""
    deploying(cloud)
    owners.set_owner(cloud.opts, id_of("gone"), "gone", "anna")
    before = owners.load(cloud.opts, id_of(of))
    for host in cloud.hosts_.values():
        host.inventory = _lying(host.inventory, "bob-8", spelled.format(id_of(of).upper()))
    told = deploy(runner, "bob", "bob-8")["bob-8"]
    assert told["result"] is True, told
    assert owners.load(cloud.opts, id_of(of)) == before


def test_another_host_says_nothing_of_whose_a_new_guest_is(runner, cloud, monkeypatch):
    deploying(cloud)
    init, other, unknown = Host.init, cloud.hosts_["hv1"], id_of("unknown")

    def made(self, name, **more):
        other.guests[name] = "running"
        other.inventory = _lying(other.inventory, name, unknown)
        return init(self, name, **more)

    monkeypatch.setattr(Host, "init", made)
    monkeypatch.setattr(unique, "resolve", lambda *_args, **_more: None)
    told = deploy(runner, "eve", "bob-8", host="hv2")["bob-8"]
    assert told["result"] is True, told
    assert owners.load(cloud.opts, id_of("bob-8")).owner == "eve"
    assert owners.load(cloud.opts, unknown).owner is None


@pytest.mark.parametrize("verb, given", [("set_owner", "bob"), ("label", "web")])
@pytest.mark.parametrize("test", [True, False])
def test_what_is_said_of_one_guest_is_not_said_of_another_whose_uuid_its_host_tells(
    runner, cloud, verb, given, test
):
    host = cloud.hosts_["hv1"]
    host.inventory = _lying(host.inventory, "secret-db", f"{{{id_of('anna-1')}}}")
    told = runner("root", verb, "secret-db", given, test=test)["secret-db"]
    assert told["result"] is False
    assert told["comment"].startswith("secret-db on hv1 has the UUID of anna-1 on hv2: ")
    assert owners.load(cloud.opts, id_of("anna-1")) == owners.Owner("anna-1", "anna")


def _lying(inventory, name, uuid_):
    def told(**more):
        found = inventory(**more)
        return _renamed(found, name, uuid_) if name in found["guests"] else found

    return told


def _renamed(found, name, uuid_):
    found["guests"][name]["uuid"] = uuid_
    return found


@pytest.mark.parametrize("wrong", ["", "../../../etc/passwd", "x", "\0", "a" * 5000])
def test_a_uuid_that_is_none_names_no_file(cloud, wrong):
    assert owners.load(cloud.opts, wrong) == owners.Owner("")
    with pytest.raises(Exception, match="no valid UUID"):
        owners.set_owner(cloud.opts, wrong, "web1", "bob")


def test_a_damaged_record_is_nobodys_and_is_named(runner, cloud):
    Path(cloud.opts["pki_dir"], "virtowners", id_of("bobs")).write_text("{")
    assert "is damaged" in comment(runner("bob", "locate", "bobs"), "bobs")


def test_a_guest_on_two_hosts_must_be_the_users_on_both(runner, cloud):
    """A host that lies has one of the name with the UUID of a guest of bob's."""
    host = cloud.hosts_["hv1"]
    inventory = host.inventory
    host.guests["anna-1"] = "running"
    host.inventory = lambda **more: _renamed(inventory(**more), "anna-1", id_of("bobs"))
    assert "no guest 'anna-1'" in comment(runner("bob", "force_off", "anna-1"), "anna-1")


WORDS = [
    *sorted(OWNERS), "gone-9", "bob-9", "hv1", "hv2", 0, 1, True, None, "", "*", "bob-1,anna-1",
    ["anna-1"], {"anna-1": {}}, "s1", "../anna-1", "salt://debian.qcow2",
]  # fmt: skip
NAMED = ["name", "host", "hyper", "new", "target", "test", "snapshot", "apply", "remove", "guests",
         "owner", "labels", "__user__", "__kwarg__", "fun", "full_return", "jid", "__tag__",
         "client", "kwargs", "arg", "__pub_user", "user", "quiet", "all", "children",
         "name_is_free", "lost", "what", "to", "uuid", "vm_", "__opts__"]  # fmt: skip


def test_no_call_of_a_user_reads_or_changes_anothers_guest(runner, cloud):
    """Any verb with anything: 10,000 calls of one user, of which the quick tests make 2,000."""
    chance, hosts = random.Random(SEED), cloud.hosts_
    done = dict.fromkeys((True, False, None), 0)
    other = re.compile("|".join(map(re.escape, sorted(FOREIGN))))
    before = {name: state for host in PLACES.values() for name, state in host.items()
              if name in FOREIGN}  # fmt: skip
    words = set()
    guests = {host: dict(one.guests) for host, one in hosts.items()}
    for number in range(CALLS):
        for host, one in hosts.items():
            one.guests = dict(guests[host])
        cloud.done.clear()
        sound = chance.random() < 0.3  # a call as a person makes it, of any guest
        # the text of help has the word both
        choices = {*(verbs.SETS["use"] if sound else verbs.RULES)} - {"help"}
        verb = chance.choice(sorted(choices))
        args = [chance.choice(WORDS) for _ in range(chance.randint(0, 4))]
        kwargs = {chance.choice(NAMED): chance.choice(WORDS)
                  for _ in range(chance.choice([0, 0, 0, 1, 2]))}  # fmt: skip
        if sound:
            of_one = verbs.RULES[verb].scope == verbs.GUEST
            args, kwargs = [chance.choice([*OWNERS, "gone-9"])] if of_one else [], {}
        said = f"call {number} of seed {SEED}: {verb} {args} {kwargs}"
        told = runner("bob", verb, *args, **kwargs)
        given = {str(one) for one in (*args, *kwargs.values())}
        shown = other.findall(json.dumps(told, default=str))
        words |= given  # of which virt.log has the names of the user's snapshots
        typed = words if verb == "log" else given
        assert all(any(name in one for one in typed) for name in shown), (said, told)
        for name in set(shown) & given:  # no more than what was said
            gone = [_swap(one, name) for one in args]
            named = {word: _swap(one, name) for word, one in kwargs.items()}
            same = runner("bob", verb, *gone, **named)
            assert json.dumps(told, default=str).replace(name, "gone-9") == json.dumps(
                same, default=str).replace(name, "gone-9"), said  # fmt: skip
        now = {name: state for one in hosts.values() for name, state in one.guests.items()
               if name in FOREIGN}  # fmt: skip
        assert now == before, said
        # a snapshot's own name is the user's to choose
        meant = {kwarg.get("domain") or kwarg.get("vm_") or kwarg.get("name")
                 for _, _, kwarg in cloud.done}  # fmt: skip
        assert not meant & FOREIGN, said
        for about in told.values():
            if isinstance(about, dict) and about.get("result", "") in done:
                done[about["result"]] += 1
    assert done[True] > CALLS / 100, done
    assert done[False] > CALLS / 2, done


def _swap(value, name):
    return "gone-9" if value == name else value
