"""Grants of ``virt:rights``, and the identity of the user, without a master."""

import ast
import multiprocessing
import random
from pathlib import Path

import pytest

pytest.importorskip("salt")

import salt.client.mixins
import salt.loader
import salt.utils.platform

from saltvirt.errors import Denied, InvalidInput
from saltvirt.fleet import requester
from saltvirt.rights import grants, verbs
from saltvirt.rights.grants import GuestIdentity, ResourceAmount

RUNNERS = sorted((Path(__file__).resolve().parents[3] / "_runners").glob("*.py"))
RIGHTS = {
    "groups": {"web": ["anna", "bob"]},
    "grants": [
        {"who": "%web", "verbs": ["use"], "guests": ["web-*"]},
        {"who": "*", "verbs": ["read", "purge"], "owned": True},
        {"who": ["bob"], "verbs": ["init", "rename"], "guests": ["bob-*"],
         "images": ["salt://deb*.qcow2"], "profiles": ["default", "small"]},
        {"who": "ops", "verbs": ["*"], "everything": True},
    ],
    "quotas": {"*": {"guests": 2, "memory": "1G"}, "bob": {"vcpus": 8, "disk": "10G"}},
}  # fmt: skip


def rights(given=None):
    return grants.read({"virt": {"rights": RIGHTS if given is None else given}})


def public(path):
    """The functions of a runner's file that Salt gives users."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node


CHECKED = {
    "runner.reporting", "runner.reporting_several", "runner.reporting_guests",
    "runner.reporting_destructive",
}  # fmt: skip


@pytest.mark.parametrize("path", RUNNERS, ids=lambda path: path.stem)
def test_every_verb_passes_the_one_check_and_has_its_rule(path):
    for node in public(path):
        decorators = {ast.unparse(one) for one in node.decorator_list}
        assert decorators & CHECKED, node.name
        assert node.name in verbs.RULES, f"virt.{node.name} is denied to everybody: say what it is"


def test_no_rule_is_of_a_verb_that_is_not_there():
    assert {node.name for path in RUNNERS for node in public(path)} == set(verbs.RULES)


def test_each_argument_that_a_rule_allows_is_one_of_the_verb():
    for node in (node for path in RUNNERS for node in public(path) if not node.args.kwarg):
        assert verbs.RULES[node.name].takes <= {one.arg for one in node.args.args}, node.name


def test_salt_loads_nothing_from_the_runners_but_these():
    """The loader gives users every function in the files, imported ones, too."""
    opts = {"extension_modules": "", "optimization_order": [0], "fileserver_backend": []}
    loader = salt.loader.LazyLoader([str(RUNNERS[0].parent)], opts, tag="runners")
    assert {name for name in loader if name.startswith("virt.")} == {
        f"virt.{verb}" for verb in verbs.RULES
    }


def test_what_acts_on_one_guest_takes_its_name():
    for path in RUNNERS:
        for node in public(path):
            rule = verbs.RULES[node.name]
            words = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
            assert ("name" in words and "name" in rule.takes) or rule.scope in (
                verbs.CLOUD, verbs.LISTING, verbs.NONE,
            ), node.name  # fmt: skip
            assert not rule.takes & {"host"} or rule.scope != verbs.GUEST, node.name


def test_users_and_groups_have_what_is_granted_and_nothing_else():
    bob, eve, ops = rights().for_user("bob"), rights().for_user("eve"), rights().for_user("ops")
    assert bob.may("start", GuestIdentity("web-1", "anna"))
    assert not bob.may("purge", GuestIdentity("web-1", "anna"))
    assert bob.may("purge", GuestIdentity("x", "bob"))
    assert not eve.sees(GuestIdentity("web-1"))
    assert rights().for_user("eve", ["web"]).may("start", GuestIdentity("web-1"))
    assert not eve.may_at_all("start")
    assert not rights({"grants": [{"who": "eve", "verbs": ["init"],
    "guests": ["web-*"]}]}).for_user(
        "eve").sees(GuestIdentity("web-1"))  # fmt: skip
    assert (eve.quota, bob.quota) == (
        ResourceAmount(2, None, 2**20),
        ResourceAmount(None, 8, None, 10 * 2**30),
    )
    assert ops.everywhere("evacuate")
    assert not bob.everywhere("start")


def test_what_is_not_granted_for_a_guest_is_not_granted_by_another_grant():
    bob, eve = rights().for_user("bob"), rights().for_user("eve")
    assert bob.sees(GuestIdentity("web-1")) and bob.sees(GuestIdentity("x", "bob"))
    assert not bob.sees(GuestIdentity("x", "anna"))
    assert bob.may_at_all("start") and not bob.may_at_all("evacuate")
    assert bob.may_name("rename", "bob-1") and bob.may_name("start", "web-1")
    assert not bob.may_name("rename", "web-1")
    assert not bob.may_name("clone", "bob-1")
    assert not eve.may_name("purge", "bob-1")
    # who may rename may not make, though the grant has images
    only = {"who": "a", "verbs": ["rename"], "guests": ["*"], "images": ["*"]}
    assert not rights({"grants": [only]}).for_user("a").may_make("a", "salt://a", ["default"])
    assert not bob.may_make("bob-1", "salt://debian.qcow2", ["default", "lan"])


@pytest.mark.parametrize(("about", "guests"), [
    ({"guests": ["web-*"]}, ["named"]), ({"labels": ["shop"]}, ["labelled"]),
    ({"owned": True}, ["owned"]), ({"owned": False}, []),
    ({"everything": True}, ["named", "labelled", "owned", "foreign"]),
])  # fmt: skip
def test_each_way_to_grant_a_guest_is_of_its_guests_alone(about, guests):
    bob = rights({"grants": [{"who": "bob", "verbs": ["start"], **about}]}).for_user("bob")
    known = {
        "named": GuestIdentity("web-1", "anna"), "owned": GuestIdentity("x", "bob"),
        "labelled": GuestIdentity("y", "anna", labels=("shop",)), "foreign": GuestIdentity("z",
        "anna", ("db",)),
    }  # fmt: skip
    assert [name for name in ("named", "labelled", "owned", "foreign")
            if bob.may("start", known[name])] == guests  # fmt: skip


def test_without_a_quota_all_four_are_unlimited():
    assert rights({"grants": []}).for_user("eve").quota.unlimited
    assert not rights({"quotas": {"eve": {"guests": 0}}}).for_user("eve").quota.unlimited
    assert rights({"quotas": {"eve": {"guests": 1}}}).for_user("eve").quota == ResourceAmount(1)
    assert (
        grants.quota_excess(ResourceAmount(0), ResourceAmount(0), ResourceAmount(1))
        == "guests: 0 of 0 used, 1 more requested"
    )
    many, none = ResourceAmount(memory_kib=1000 * 2**20), ResourceAmount(0, 0, 0, 0)
    assert "0 B of 1000 GiB used" in grants.quota_excess(many, none, ResourceAmount(0, 0, 2**30, 0))


def test_a_user_may_be_called_by_a_number():
    found = rights({"grants": [{"who": [7, "8"], "verbs": "list", "guests": 9}]})
    assert found.for_user("7").may("list", GuestIdentity("9")) and found.for_user("8").may(
        "list", GuestIdentity("9")
    )


@pytest.mark.parametrize("image", [
    "salt://debian.qcow2?saltenv=x", "salt://deb/../secret.qcow2", "/srv/deb.qcow2",
    "salt://deb\n.qcow2", "salt://deb .qcow2",
])  # fmt: skip
def test_a_guest_is_made_of_nothing_but_what_is_granted(image):
    bob = rights().for_user("bob")
    assert bob.may_make("bob-1", "salt://debian.qcow2", ["default", "small"])
    assert not bob.may_make("bob-1", image, ["default"])
    assert not bob.may_make("bob-1", "salt://debian.qcow2", ["lan"])
    assert not bob.may_make("web-1", "salt://debian.qcow2", ["default"])


@pytest.mark.parametrize(("given", "said"), [
    ({"grants": {"who": "a"}}, "must be a list"),
    ({"grants": 7}, "virt:rights:grants must be a list"),
    ({"grants": [7]}, "virt:rights:grants:0 must be a mapping"),
    ({"grants": [{"who": "a", "verbs": ["evacuate"]}]}, "acts on the whole cloud"),
    ({"grants": [{"who": "a", "verbs": ["*"]}]}, "'*' is none of"),
    ({"grants": [{"who": "a", "verb": ["list"]}]}, "unknown setting 'verb'"),
    ({"grants": [{"verbs": ["list"]}]}, "virt:rights:grants:0:who must be"),
    ({"grants": [{"who": "a", "verbs": ["list"], "owned": "no"}]}, "True or False"),
    ({"quotas": {"a": {"guests": -1}}}, "a whole number from 0"),
    ({"quotas": {"a": {"guests": True}}}, "a whole number from 0"),
    ({"quotas": {"a": {"vcpus": "2"}}}, "a whole number from 0"),
    ({"groups": {"a": [True]}}, "texts of one line"), ({"groups": {"a": [""]}}, "of one line"),
    ({"groups": {"a": ["b\n"]}}, "texts of one line"),
    ({"quotas": {"a": {"ram": 1}}}, "unknown setting 'ram'"),
    ({"groups": {"a": [None]}}, "texts of one line"), ({"grant": []}, "unknown setting"),
])  # fmt: skip
def test_what_is_wrong_is_said_and_named(given, said):
    with pytest.raises(InvalidInput, match=said.replace("*", r"\*")):
        rights(given)


@pytest.mark.parametrize("opts", [
    {"virt": {"rights": None}}, {"virt": {"rights": {}}}, {"virt.rights": {}},
    {"virt.rights.grants": []},
])  # fmt: skip
def test_rights_without_a_grant_allow_nothing(opts):
    assert grants.configured(opts)
    assert not grants.read(opts).for_user("bob").may_at_all("list")


NOTHING = ({}, {"virt": {}}, {"virt": None}, {"virt.rightsx": 1}, {"virt": 7}, {7: 1})


@pytest.mark.parametrize("opts", NOTHING)
def test_without_rights_nobody_is_limited(opts):
    assert not grants.configured(opts)


def test_a_quota_counts_each_of_four():
    quota = ResourceAmount(2, 8, 4 * 2**20, 2**30)
    used = ResourceAmount(1, 4, 2 * 2**20, 2**29)
    assert grants.quota_excess(quota, used, used) is None
    for more, word in (
        (ResourceAmount(2, 0, 0, 0), "guests: 1 of 2"), (ResourceAmount(0, 5, 0, 0), (
            "vCPUs: 4 of 8"
        )),
        (ResourceAmount(0, 0, 2**22, 0), "memory: 2 GiB of 4 GiB"), (ResourceAmount(0, 0, 0, 2**30),
        "disk: "),
    ):  # fmt: skip
        assert word in grants.quota_excess(quota, used, more)
    assert grants.quota_excess(ResourceAmount(), used, used) is None


def test_nobody_has_more_than_the_sum_of_his_grants():
    """10,000 random questions, judged by a second, plain reading of the configuration."""
    chance = random.Random(18)
    names = ["web-1", "web-2", "bob-1", "db", "eve-1"]
    for _ in range(10_000):
        given = [
            {"who": chance.choice(["bob", "eve", "%web", "*"]),
             "verbs": [chance.choice(["list", "start", "purge", "locate"])],
             "guests": chance.sample(["web-*", "db", "bob-?"], chance.randint(0, 2)),
             "owned": chance.random() < 0.3}
            for _ in range(chance.randint(0, 4))
        ]  # fmt: skip
        all_of = rights({"groups": {"web": ["bob"]}, "grants": given})
        user, name = chance.choice(["bob", "eve", "mallory"]), chance.choice(names)
        owner, verb = chance.choice([None, "bob", "eve"]), chance.choice(["list", "start", "purge"])
        bobs = {"*", user, *(["%web"] if user == "bob" else [])}
        mine = [one for one in given if one["who"] in bobs]
        begins = {"web-*": "web-", "db": "db", "bob-?": "bob-"}
        meant = any(
            verb in one["verbs"]
            and (any(name.startswith(begins[p]) for p in one["guests"])
                 or (one["owned"] and owner == user))
            for one in mine
        )  # fmt: skip
        assert all_of.for_user(user).may(verb, GuestIdentity(name, owner)) is meant


class Instance:
    """What Salt calls in place of a RunnerClient."""

    def __init__(self, call):
        self.call = call

    def low(self, fun, low, **_more):
        return self.call()


def asked(user, call, opts=None, daemonize=True, monkeypatch=None):
    """What the call returns, made by Salt's own entry for what comes over the network."""
    if daemonize:
        monkeypatch.setattr(salt.utils.platform, "spawning_platform", lambda: True)
    return salt.client.mixins.AsyncClientMixin._proc_function(
        instance=Instance(call), opts=opts or {}, fun="virt.list", low={}, user=user, tag="t",
        jid="1", daemonize=daemonize,
    )  # fmt: skip


def test_who_asks_over_the_network_is_told_by_salts_entry(monkeypatch):
    def who():
        return requester.requesting_user({"__cli": "salt-master"}, "UNKNOWN")

    assert asked("bob", who, monkeypatch=monkeypatch) == "bob"
    # an orchestration begun by bob asks as bob, not as its own nobody
    inner = lambda: asked("root", who, daemonize=False)  # noqa: E731
    assert asked("bob", inner, monkeypatch=monkeypatch) == "bob"
    again = lambda: asked("anna", who, monkeypatch=monkeypatch)  # noqa: E731
    assert asked("bob", again, monkeypatch=monkeypatch) == "bob"


@pytest.mark.parametrize("user", [
    "root", "Reactor", "UNKNOWN", "sudo_bob", "salt", "", None, 7, "%web", "*", "a\nb",
])  # fmt: skip
def test_a_user_who_cannot_be_told_from_others_is_nobody(user, monkeypatch):
    opts = {"__cli": "salt-master", "user": "salt"}
    with pytest.raises(Denied, match="cannot identify"):
        asked(user, lambda: requester.requesting_user(opts, user), monkeypatch=monkeypatch)


def test_those_who_have_the_master_are_not_limited(monkeypatch):
    assert requester.requesting_user({"__cli": "salt-run"}, "root") is None
    assert (
        asked(
            "sudo_x",
            lambda: requester.requesting_user({"__cli": "salt-run"}),
            monkeypatch=monkeypatch,
        )
        is None
    )
    for user in (None, "Reactor", "UNKNOWN", "root", "sudo_anna"):
        assert requester.requesting_user({"__cli": "salt-master"}, user) is None
    assert requester.requesting_user({"__cli": "salt-master"}, "bob") == "bob"


@pytest.mark.parametrize("process", ["ProcessFunc(AsyncClientMixin._proc_function", "MWorker-1"])
def test_a_request_without_a_user_is_nobodys(process, monkeypatch):
    """Such as a thread that an orchestration of a user began, or a minion by peer_run."""
    monkeypatch.setattr(multiprocessing.current_process(), "name", process)
    with pytest.raises(Denied):
        requester.requesting_user({"__cli": "salt-master"}, "root")


def test_a_salt_that_has_it_otherwise_lets_nobody_pass(monkeypatch):
    monkeypatch.setattr(salt.client.mixins.AsyncClientMixin, "_proc_function", lambda low: None)
    with pytest.raises(Denied):
        requester.requesting_user({"__cli": "salt-master"}, "root")
    assert requester.requesting_user({"__cli": "salt-run"}, "root") is None


def test_groups_are_salts_word_and_none_when_it_fails(monkeypatch):
    told = {"pam.groups": lambda user: ["web", 7, user]}
    monkeypatch.setattr(requester.salt.loader, "auth", lambda opts: told)
    assert requester.groups({}, "pam", "bob") == ("web", "bob")
    assert requester.groups({}, "ldap", "bob") == requester.groups({}, None, "bob") == ()
