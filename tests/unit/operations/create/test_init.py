"""The deployment of a guest: arguments, choice of the host, and result."""

import contextlib
import json

import pytest
import salt.config

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers.created import GuestKey
from saltvirt.fleet import answer, authorization, secret
from saltvirt.fleet.answer import Answer
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.access import owners
from saltvirt.operations.core.operation import Reasons
from saltvirt.operations.core.report import Report
from saltvirt.operations.create import init as init_module
from saltvirt.operations.create import request, served_image
from saltvirt.operations.create.cluster_snapshot import ClusterSnapshot
from saltvirt.operations.create.init import Init
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.journal import location_cache
from saltvirt.placement import choose, facts, policy
from saltvirt.placement.choose import Candidate, PlacementDecision
from saltvirt.revert import UndoStack
from tests import counted
from tests.fakes.fleet import Fleet, failed
from tests.unit.operations.cluster.test_unique import HOST, MAKES

BY = policy.from_config(None, None)


def wanted(**more):
    given = {"name": "web1", "cpu": 1, "mem": 64, "image": None, "start": False, **more}
    given.setdefault("arguments", {"seed": False})
    return InitRequest(**given)


def init(cloud, **more):
    return Init(cloud, BY, wanted(**more), Report(cloud, "web1", "init"))


def steps(cloud):
    """What the operation says, in its order."""
    told = []
    cloud.fire_event = lambda tag, data: told.append((tag.rpartition("/")[2], data["message"]))
    return told


# -- what was asked for -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "is_seeded"),
    [("False", False), ("no", False), (None, True), ("true", True), ("cloud-init", True)],
)
def test_whether_a_guest_is_seeded_is_read_as_its_host_reads_it(given, is_seeded):
    """salt-api gives text."""
    assert wanted(arguments={"seed": given}).seeded is is_seeded
    with pytest.raises(errors.InvalidInput, match="seed 'perhaps' is not true or false"):
        wanted(arguments={"seed": "perhaps"})


def test_the_words_of_older_versions_are_the_hypervisor():
    for word in ("vm_type", "hypervisor_type"):
        given = {word: "xen", "seed": True}
        found = wanted(arguments=given)
        assert (found.hypervisor, found.arguments) == ("xen", {"seed": True})
        assert word in given, "what was given stays as it was"
        assert wanted(arguments={word: None}).hypervisor == "kvm"
    assert wanted(name=123).name == "123"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hypervisor": 7}, "hypervisor 7 is not a text"),
        ({"groups": 7}, "groups must be a list of names, not 7"),
        ({"groups": ["a", 7]}, "groups: 7 is not a name"),
        ({"groups": ["a\n"]}, "groups: .* is not a name"),
        ({"arguments": {"metadata": 7}}, "metadata"),
    ],
)
def test_what_is_of_the_wrong_type_is_named(more, words):
    with pytest.raises(errors.InvalidInput, match=words):
        wanted(**more)


def test_groups_are_a_list_or_one_text():
    for groups in ("a b", "a,b", ["a", "b"], ("a", "b"), "a, b"):
        assert wanted(groups=groups).groups == ("a", "b")


def test_what_the_host_that_makes_it_is_told():
    asked = wanted(
        cpu=2, image="/i", groups="a b", group_policy="separate", labels={"z": 1}, prefer={"y": 2},
        arguments={"seed": True, "metadata": {"mine": "x"}}, start=True,
    )  # fmt: skip
    told = asked.host_request().to_answer()
    kept = {"groups": "a b", "group_policy": "separate", "labels": '{"z": 1}', "prefer": '{"y": 2}'}
    assert told.pop("metadata") == {"mine": "x", **kept, "operation": asked.operation}
    assert told == {
        "name": "web1", "cpu": 2, "mem": 64, "image": "/i", "hypervisor": "kvm", "seed": True,
        "start": False, "approve_key": True,
    }  # fmt: skip
    assert wanted().placement_metadata() == {}
    assert len(asked.operation) == 32
    assert asked.operation != wanted().operation


def test_what_every_host_is_told():
    """To say what it would take; what is only for the guest is for one host."""
    secrets = dict.fromkeys({*secret.ARGUMENTS, "grains", "pub_key", "startup_states"}, "x")
    graphics = {"type": "vnc", "password": "hush"}
    asked = wanted(arguments={**secrets, "metadata": {"mine": "x"}, "graphics": graphics})
    found = asked.sizing_arguments()
    assert found["metadata"] == {"mine": "x"}
    assert found["graphics"] == {"type": "vnc"}
    assert asked.arguments["graphics"]["password"] == "hush"
    assert not set(secrets) & set(found)
    assert wanted(arguments={"graphics": "vnc"}).sizing_arguments()["graphics"] == "vnc"


@pytest.mark.parametrize(
    ("mem", "found"),
    [
        (64, (64, 0)), ("1GiB", (1024, 0)), ({"boot": 64, "max": 128}, (64, 128)),
        ({"current": 32}, (32, 0)), ({"boot": 64, "current": 32}, (64, 0)),
    ],
)  # fmt: skip
def test_its_memory(mem, found):
    request = wanted(mem=mem).request()
    assert (request.memory_kib, request.max_memory_kib) == tuple(mib * 1024 for mib in found)


def test_its_vcpus():
    for cpu, found in ((3, 3), ({"maximum": 4, "current": 1}, 4), ({}, 1)):
        assert wanted(cpu=cpu).request().vcpus == found


def test_the_request_to_placement():
    asked = wanted(
        image="/i", host="hv2", hypervisor=None, groups="a", group_policy="separate",
        labels={"z": 1}, prefer={"y": 2}, arguments={"arch": "aarch64"},
    )  # fmt: skip
    assert asked.request() == facts.PlacementRequest(
        "web1", 1, 64 * 1024, arch="aarch64", image="/i", labels={"z": 1}, prefer={"y": 2},
        groups=("a",), group_policy="separate", only="hv2", by_profile=True,
    )  # fmt: skip
    assert wanted(hypervisor="xen").request().hypervisor == "xen"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"name": "../a"}, "name"), ({"cpu": 0}, "cpu"), ({"mem": "much"}, "mem"),
        ({"mem": {"boot": 64, "max": "much"}}, "mem max"),
        ({"mem": 4}, "mem=4 is 4 MiB: give MiB, or a size with a unit"),
        ({"labels": ["a"]}, r"labels: give a dictionary of labels, not \['a'\]"),
        ({"prefer": "a"}, "prefer: give a dictionary of labels, not 'a'"),
        ({"labels": {"rack": b"\xff"}}, "labels: .* must contain only names with texts"),
        ({"prefer": {"rack": {1, 2}}}, "prefer: .* must contain only names with texts"),
        ({"labels": {1: 2, "a": 3}}, "labels: .* must contain only names with texts"),
        ({"group_policy": "together"}, "group_policy 'together': must be one of "),
    ],
)  # fmt: skip
def test_each_part_that_is_wrong_is_named(tmp_path, more, words):
    with pytest.raises(errors.InvalidInput, match=words):
        wanted(**more).request()
    if {"labels", "prefer"} & more.keys():
        with pytest.raises(errors.InvalidInput, match=words):
            wanted(**more).host_request()
    one = init(Fleet(tmp_path), **more)
    reasons = Reasons()
    with reasons:
        one.request(reasons)
    assert any(words.partition(":")[0] in said for said in reasons.texts)


def test_a_size_is_that_of_the_system_disk():
    disks = [{"name": "system", "size": "20G"}]
    assert wanted(arguments={"size": "20G"}).host_request().options["disks"] == disks
    for more in ({"size": "20G", "disk": "big"}, {"size": "20G", "disks": [{"name": "a"}]}):
        with pytest.raises(errors.InvalidInput, match="size requires the default disk profile"):
            wanted(arguments=more)
    with pytest.raises(errors.InvalidInput, match="size"):
        wanted(arguments={"size": "big"})


def test_an_unknown_argument_names_the_closest_of_the_runner_and_the_host():
    request.refuse_unknown({"disks": [], "overcommit": True, "connection": "x", "__pub_user": "x"})
    for word, near in (("hots", "host"), ("enable_vcn", "enable_vnc"), ("tset", "test")):
        with pytest.raises(errors.InvalidInput, match=f"'{word}', did you mean '{near}'"):
            request.refuse_unknown({word: 1})


def test_an_image_that_the_master_does_not_serve_is_refused_before_a_host_is_asked(tmp_path):
    roots = tmp_path / "roots"
    roots.mkdir()
    (roots / "debian.qcow2").touch()
    opts = {
        **salt.config.master_config(None), "cachedir": str(tmp_path), "sock_dir": str(tmp_path),
        "fileserver_backend": ["roots"], "file_roots": {"base": [str(roots)]},
    }  # fmt: skip
    served_image.check(opts, "salt://debian.qcow2")
    served_image.check(opts, "/srv/missing.qcow2")
    for source in ("salt://missing.qcow2", "salt://debian.qcow2?saltenv=dev"):
        with pytest.raises(errors.NotFound, match="does not exist on this master"):
            served_image.check(opts, source)
    served_image.check({**opts, "order_masters": True}, "salt://missing.qcow2")
    cloud = Fleet(tmp_path / "cloud")
    cloud.opts.update(opts)
    reasons = Reasons()
    with reasons:
        init(cloud, image="salt://missing.qcow2").request(reasons)
    assert "salt://missing.qcow2 does not exist on this master" in reasons.texts[0]


@pytest.mark.parametrize("seed", [True, False])
def test_a_pillar_is_for_a_guest_with_a_key(tmp_path, seed):
    cloud = Fleet(tmp_path)
    cloud.opts["ext_pillar"] = [{"virtkey": "_"}]
    one = init(cloud, pillar={"role": "x"}, arguments={"seed": seed})
    if seed:
        one.check_pillar()
    else:
        with pytest.raises(errors.InvalidInput, match="a minion's key only with seed"):
            one.check_pillar()
    cloud.opts["ext_pillar"] = []
    with pytest.raises(errors.VirtError, match="ext_pillar"):
        one.check_pillar()
    init(cloud, arguments={"seed": seed}).check_pillar()


# -- where it goes ------------------------------------------------------------------------


def guests(**named):
    return {name: {"vcpus": 1, "memory_kib": 1024, **more} for name, more in named.items()}


@pytest.mark.parametrize("creating", [True, False])
def test_a_name_is_taken_wherever_it_is(tmp_path, creating):
    has = {**HOST, "guests": guests(web1={"creating": creating}, other={})}
    cloud = Fleet(tmp_path, hv1=MAKES, hv2={**MAKES, "virt.inventory": has})
    with pytest.raises(errors.AlreadyExists) as said:
        init(cloud, host="hv1").run()
    half = " (being created, or partially created: see virt.repair name=web1)"
    assert said.value.text == f"web1 already exists, on hv2{half if creating else ''}"
    assert ("hv1", "virt.init") not in cloud.called


def test_a_name_that_differs_by_case_alone_is_taken(tmp_path):
    has = {**HOST, "guests": guests(WEB1={})}
    cloud = Fleet(tmp_path, hv1=MAKES, hv2={**MAKES, "virt.inventory": has})
    with pytest.raises(errors.AlreadyExists, match=r"web1: WEB1 already exists, on hv2, .* case"):
        init(cloud, host="hv1").run()


def test_only_the_host_that_was_named_gets_it(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES, hv2=MAKES, hv3=MAKES)
    for host in ("hv1", "hv2", "hv3"):
        one = init(cloud, host=host)
        decision, hosts = one.decide(one.init_request.request(), Reasons(first=True))
        assert ([found.host for found in decision.ranked], decision.rejected) == ([host], {})
        assert len(hosts) == 3, "whose guests have their names"


def test_a_host_that_does_not_answer_is_none(tmp_path):
    cloud = Fleet(tmp_path, hv1={"*": answer.silent("hv1", 15, busy=True)}, hv2=MAKES)
    one = init(cloud, name_is_free=True)
    decision, hosts = one.decide(one.init_request.request(), Reasons(first=True))
    assert [host.name for host in hosts] == ["hv2"]
    assert decision.rejected["hv1"][0] == "down"
    one = init(cloud, name_is_free=True, host="hv1")
    with pytest.raises(errors.Refused, match="no host can take web1: hv1: no answer in 15 s"):
        one.decide(one.init_request.request(), Reasons(first=True))


def test_what_all_hosts_say_of_a_profile_is_the_requests_fault():
    profile = ("profile", "no disk profile x")
    found = init_module.no_host_error(
        "web1", PlacementDecision((), {"hv1": profile, "hv2": profile})
    )
    assert (type(found), found.text) == (errors.InvalidInput, "web1: no disk profile x")
    for rejected in (
        {"hv1": profile, "hv2": ("memory", "full")}, {"hv1": ("memory", "full")}, {},
        {"hv1": profile, "hv2": ("profile", "another")},
    ):  # fmt: skip
        found = init_module.no_host_error("web1", PlacementDecision((), rejected))
        assert type(found) is errors.Refused
        assert "no host can take web1" in found.text


def test_the_key_of_a_guest_that_exists_is_not_mentioned(tmp_path, monkeypatch):
    has = {**HOST, "guests": guests(web1={})}
    cloud = Fleet(tmp_path, hv1=MAKES, hv2={**MAKES, "virt.inventory": has})
    one = init(cloud, arguments={"seed": True})
    monkeypatch.setattr(one.keys, "status", lambda name: "accepted")
    assert one.check().reasons == ("web1 already exists, on hv2",)


@pytest.mark.parametrize(("given", "seeded"), [({}, True), ({"seed": False}, False),
                         ({"seed": "cloud-init"}, True)])  # fmt: skip
def test_a_guest_is_seeded_unless_it_is_said(tmp_path, given, seeded):
    one = init(Fleet(tmp_path), arguments=given)
    assert one.init_request.seeded is seeded
    one.keys.status = lambda name: "accepted"
    refused = pytest.raises(errors.KeyRefused) if seeded else contextlib.nullcontext()
    with refused:
        one.check_key("web1")


@pytest.mark.parametrize("seed", [True, False])
def test_a_key_that_is_trusted_already_is_another_machines(tmp_path, monkeypatch, seed):
    one = init(Fleet(tmp_path), arguments={"seed": seed})
    for status, refused in (("accepted", seed), ("pending", False), (None, False)):
        monkeypatch.setattr(one.keys, "status", lambda name, status=status: status)
        if refused:
            with pytest.raises(errors.KeyRefused, match=r"an accepted key for web1: .*salt-key -d"):
                one.check_key("web1")
            monkeypatch.setattr(one.keys, "host_of", lambda name: "hv3")
            ours = (
                r"key for web1, of a guest on hv3 that no .* salt-run virt.repair name=web1 shows"
            )
            with pytest.raises(errors.KeyRefused, match=ours) as said:
                one.check_key("web1")
            assert "salt-key" not in said.value.text
            monkeypatch.setattr(one.keys, "host_of", lambda name: None)
        else:
            one.check_key("web1")


@pytest.mark.parametrize(
    ("arguments", "others"),
    [({"seed": True}, True), ({}, True), ({"seed": False}, False),
     ({"seed": False, "graphics": {"password": "x"}}, True)],
)  # fmt: skip
def test_a_host_of_another_master_makes_no_guest_with_a_key(
    tmp_path, monkeypatch, arguments, others
):
    def refuse(_opts, host, _name):
        if host == "hv1":
            raise errors.Unsupported("below a syndic")

    monkeypatch.setattr(authorization, "refuse_others", refuse)
    cloud = Fleet(tmp_path, hv1=MAKES, hv2=MAKES)
    one = init(cloud, arguments=arguments)
    monkeypatch.setattr(one, "check_secrets", list)
    decision, _ = one.decide(one.init_request.request(), Reasons(first=True))
    assert {one.host for one in decision.ranked} == ({"hv2"} if others else {"hv1", "hv2"})
    assert decision.rejected == ({"hv1": ("syndic", "below a syndic")} if others else {})


def test_what_is_secret_is_for_hosts_that_are_named(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        init_module.secret, "refuse_claimed", lambda opts, host, words: asked.append((host, words))
    )
    init(Fleet(tmp_path)).check_secrets(["hv1"])
    init(Fleet(tmp_path), pillar={"x": 1}).check_secrets(["hv1", "hv2"])
    assert asked == [("hv1", []), ("hv1", ["pillar"]), ("hv2", ["pillar"])]


class Ranking:
    """The hosts in the order in which they are tried."""

    def __init__(self, hosts):
        self.hosts = sorted(hosts)

    @property
    def decision(self):
        return PlacementDecision(tuple(Candidate(host, 1) for host in self.hosts), {})

    def withdraw(self, _fleet, host, guest_name):
        assert (host, guest_name) == (self.hosts.pop(0), "web1")

    def place_guest(self, *_asked, excluded, ha_options):
        assert not set(excluded) & set(self.hosts)
        return self.decision


def tried(cloud, monkeypatch, says, **virt):
    """(what came out, the hosts that were asked) where each host says what is in ``says``."""
    cloud.opts["virt"] = virt
    one, asked = init(cloud), []

    def on(host, _undo, _begun):
        asked.append(host)
        if isinstance(says[host], Exception):
            raise says[host]
        return says[host]

    class Begun:
        def record_host(self, host):
            pass

    monkeypatch.setattr(one, "create_on", on)
    one.cluster = Ranking(says)
    try:
        return one.create(one.cluster.decision, UndoStack(), Begun()), asked
    except errors.Refused as exc:
        return exc.text, asked


def test_the_next_host_is_asked_while_one_refuses(tmp_path, monkeypatch):
    no, full = errors.Refused("no image"), errors.NoRoom("full")
    cloud = Fleet(tmp_path)
    told = steps(cloud)
    assert tried(cloud, monkeypatch, {"a": no, "b": full, "c": "made"}) == ("made", ["a", "b", "c"])
    assert told == [
        ("placed", "web1: creating it on a"), ("refused", "web1: no image"),
        ("placed", "web1: creating it on b"), ("refused", "web1: full"),
        ("placed", "web1: creating it on c"),
    ]  # fmt: skip
    crowd = {f"h{number}": full for number in range(9)}
    said, asked = tried(cloud, monkeypatch, crowd)
    assert asked == sorted(crowd), "somebody else was faster at each"
    assert said.endswith("; and 4 more")
    assert "no host took web1: " in said
    said, asked = tried(cloud, monkeypatch, dict.fromkeys("abcde", no))
    assert asked == ["a", "b", "c"]
    assert tried(cloud, monkeypatch, {"a": no, "b": "made"}, attempts=1)[1] == ["a"]
    assert tried(cloud, monkeypatch, {"a": full, "b": "made"}, attempts=1)[0] == "made"


def test_each_host_is_weighed_before_it_is_told_what_is_secret(tmp_path, monkeypatch):
    """One of many is placed without a look at whose name a host only claims."""
    done, full = [], errors.NoRoom("full")

    def weigh(_opts, host, _words):
        done.append(("weighed", host))
        if host == "b":
            raise errors.InvalidInput("b only claims to be a hypervisor")

    def create_on(host, _undo, _begun):
        done.append(("told", host))
        raise full

    monkeypatch.setattr(init_module.secret, "refuse_claimed", weigh)
    one = init(Fleet(tmp_path), pillar={"x": 1})
    monkeypatch.setattr(one, "create_on", create_on)
    one.cluster = Ranking("abc")
    begun = type("Begun", (), {"record_host": lambda self, host: None})()
    with pytest.raises(errors.InvalidInput, match="only claims"):
        one.create(one.cluster.decision, UndoStack(), begun)
    assert done == [("weighed", "a"), ("told", "a"), ("weighed", "b")]


def test_of_a_crowd_the_first_are_named():
    assert init_module.refusals_text(list("abcde")) == "a; b; c; d; e"
    assert init_module.refusals_text(list("abcdef")) == "a; b; c; d; e; and 1 more"


# -- what became of it --------------------------------------------------------------------


def test_what_could_not_be_undone_is_in_the_error():
    undo = UndoStack()
    with pytest.raises(errors.NoRoom) as said, init_module.naming_leftovers(undo):
        raise errors.NoRoom("full")
    assert "could not undo" not in said.value.text
    undo.failed = ["purge: busy", "key: stays"]
    with pytest.raises(errors.NoRoom) as said, init_module.naming_leftovers(undo):
        raise errors.NoRoom("full")
    end = "full; could not undo: purge: busy; key: stays; see salt-run virt.repair"
    assert said.value.text.endswith(end)


@pytest.mark.parametrize(
    ("made", "accepted", "pillar", "words"),
    [
        (("web2", None), None, None, "hv1 was asked for web1 and answered for 'web2'"),
        (("web1", "key"), None, None, "the master did not get the key of web1"),
        (("web1", "key"), "another", None, "the master did not get the key of web1"),
        (("web1", "key"), " key\n", {"x": 1}, None), (("web1", None), None, None, None),
        (("web1", None), None, {"x": 1}, "web1 has no disk with an image, and so no minion"),
    ],
)  # fmt: skip
def test_the_key_that_a_host_speaks_of_came_in(
    tmp_path, monkeypatch, made, accepted, pillar, words
):
    cloud = Fleet(tmp_path)
    told = steps(cloud)
    monkeypatch.setattr(init_module.KeyStore, "accepted", lambda self, name: accepted)
    asked = cloud, Report(cloud, "web1", "init"), "hv1", "web1"
    key = GuestKey(name=made[0], host="hv1", pub_key=made[1])
    if words:
        with pytest.raises(errors.VirtError, match=words):
            init_module.confirm_key(*asked, key, pillar)
        assert told == []
    else:
        init_module.confirm_key(*asked, key, pillar)
        assert told == [("accepted", "web1: key accepted")] * bool(made[1])


STARTED = {"before": "shutdown", "after": "running"}


@pytest.mark.parametrize(
    ("start", "state", "start_says", "words"),
    [
        (True, "running", STARTED, None),
        (False, "shutdown", STARTED, None),
        (True, "running", {"before": "running", "after": None}, None),
        (True, "paused", {"before": "paused", "after": None},
         "hv1: web1 was started, but libvirt reports paused"),
        (True, "paused", {"before": "shutdown", "after": "paused"}, "libvirt reports paused"),
        (True, None, {"before": None, "after": None}, "hv1: web1 no longer exists there"),
        (True, "running", answer.lost("hv1"), None),
        (True, "shutdown", answer.lost("hv1"), answer.lost("hv1").error),
        (True, "running", failed("no room"), "no room"),
    ],
)  # fmt: skip
def test_a_guest_that_is_made_is_started_where_it_shall_run(
    tmp_path, start, state, start_says, words
):
    cloud = Fleet(tmp_path, hv1={"virt.power": start_says, "virt.vm_state": {"web1": state}})
    told = steps(cloud)
    asked = cloud, Report(cloud, "web1", "init"), "hv1", "web1"
    if words:
        with pytest.raises(errors.VirtError, match=words):
            init_module.deliver(*asked, start_policy=BY if start else None)
        assert told == []
    else:
        assert init_module.deliver(*asked, start_policy=BY if start else None) == state
        assert told == [("done", f"web1: {state}")]
    assert (("hv1", "virt.power") in cloud.called) is start


def test_it_is_started_by_the_masters_policy_in_one_job(tmp_path):
    cloud, asked = Fleet(tmp_path, hv1={"virt.power": STARTED}), []
    real = cloud.gather
    cloud.gather = lambda *given, **how: asked.append((given, how)) or real(*given, **how)
    init_module.deliver(cloud, Report(cloud, "web1", "init"), "hv1", "web1", start_policy=BY)
    [((hosts, fun, kwarg), how)] = asked
    assert (hosts, fun, how["long"]) == (["hv1"], "virt.power", True)
    assert kwarg == {
        "name": "web1", "verb": "start", "states": ["shutdown", "crashed"],
        "placement": {"policy": BY.to_wire()},
    }  # fmt: skip


def test_what_it_would_take_is_told():
    asked = facts.PlacementRequest(
        "web1", 2, 2048 * 1024, disk_bytes=3 << 30, pools={"vms": 1 << 30},
        bridges=frozenset({"b", "a"}), networks=frozenset({"d", "c"}),
    )  # fmt: skip
    found = init_module.planned(asked, "hv1", {"table": "t"})
    assert (
        found.comment == "web1 would be created on hv1: 2 vCPUs, 2048 MiB of memory, 4 GiB of disk"
    )
    assert found.changes == {"created": {
        "host": "hv1", "vcpus": 2, "memory_mib": 2048, "disk_bytes": 3 << 30,
        "pools": {"vms": 1 << 30}, "bridges": ["a", "b"], "networks": ["c", "d"],
    }}  # fmt: skip
    assert found.details == {"host": "hv1", "table": "t"}


def on(cloud, said, **more):
    """What came out of asking hv1, which says that."""
    cloud.answers["hv1"] = {**MAKES, "virt.init": said}
    one = init(cloud, **more)
    return one.make_on("hv1", one.init_request.host_request())


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (answer.down("hv1"), errors.Refused, "hv1: down"),
        (answer.silent("hv1", 15, busy=True), errors.ConnectionFailed, "it may still be creating"),
        (Answer("hv1", error="nonsense", kind=answer.BAD), errors.ConnectionFailed, "nonsense; it"),
        (failed("no such image"), errors.VirtError, "no such image"),
    ],
)
def test_a_host_that_did_not_say_that_it_made_it(tmp_path, said, error, words):
    with pytest.raises(error, match=words):
        on(Fleet(tmp_path), said)


def test_a_host_that_made_it_frees_the_slot(tmp_path):
    cloud = Fleet(tmp_path)
    cloud.answers["hv1"] = MAKES
    one, freed = init(cloud), []
    one.slot.close = lambda: freed.append(True)
    assert one.make_on("hv1", one.init_request.host_request()).name == "web1"
    assert freed == [True]
    how = []
    real = cloud.gather

    def gather(hosts, fun, kwarg=None, **options):
        how.append((fun, options["long"]))
        return real(hosts, fun, kwarg)

    cloud.gather = gather
    one.make_on("hv1", one.init_request.host_request())
    assert how == [("virt.init", True)], "it may take as long as it goes on"
    told = steps(cloud)
    one.idle()
    assert (len(freed), told[0][0]) == (3, "quiet")


LOST = answer.lost("hv1")


def has(**more):
    return {"virt.leftovers": {"guests": {}, "unfinished": [], "migrations": {}, **more}}


@pytest.mark.parametrize("image", ["/i", None])
@pytest.mark.parametrize("seed", [True, False, None])
@pytest.mark.parametrize("accepted", ["key", None])
def test_a_guest_whose_answer_was_lost_is_there_with_its_key(
    tmp_path, monkeypatch, image, seed, accepted
):
    cloud = Fleet(tmp_path)
    one = init(cloud, image=image, arguments={} if seed is None else {"seed": seed})
    mine = {"guests": {"web1": "shutdown"}, "operations": {"web1": one.init_request.operation}}
    cloud.answers["hv1"] = has(**mine)
    monkeypatch.setattr(one.keys, "accepted", lambda name: accepted)
    told = steps(cloud)
    if image and seed is not False and not accepted:
        with pytest.raises(errors.ConnectionFailed, match="the master did not get its key"):
            one.resolve_lost("hv1", LOST)
    else:
        wanted = GuestKey(name="web1", host="hv1", pub_key=accepted)
        assert one.resolve_lost("hv1", LOST) == wanted
        assert told[0][0] == "found"
    assert ("hv1", "virt.purge") not in cloud.called


def test_a_host_that_cannot_say_what_it_has_made_may_have_made_it(tmp_path):
    cloud = Fleet(tmp_path, hv1={"virt.leftovers": failed("libvirt is away")})
    with pytest.raises(
        errors.ConnectionFailed, match=r"hv1 may have created web1: .*libvirt is away"
    ):
        init(cloud).resolve_lost("hv1", LOST)


def test_a_host_that_is_busy_may_take_long_to_say_what_it_has(tmp_path):
    cloud = Fleet(tmp_path, hv1=has())
    asked = heard(cloud)
    with pytest.raises(errors.Refused, match="nothing was created there"):
        init(cloud).resolve_lost("hv1", LOST)
    assert [how["long"] for *_, how in asked] == [True]


def test_metadata_of_the_caller_is_told_as_it_is():
    assert json.loads(wanted(labels={"b": 1, "a": 2}).placement_metadata()["labels"]) == {
        "a": 2,
        "b": 1,
    }
    assert wanted(labels={"b": 1, "a": 2}).placement_metadata()["labels"] == '{"a": 2, "b": 1}'
    assert wanted(arguments={"metadata": None}).host_request().metadata.keys() == {"operation"}


def test_a_candidate_more_than_is_tried_is_told_no_secret(tmp_path, monkeypatch):
    cloud = Fleet(tmp_path, **{f"hv{number}": MAKES for number in range(1, 6)})
    cloud.opts["virt"] = {"attempts": 2}
    one, asked = init(cloud), []
    monkeypatch.setattr(one, "check_secrets", lambda hosts: asked.append(list(hosts)))
    decision, _ = one.decide(one.init_request.request(), Reasons(first=True))
    assert asked == [[found.host for found in decision.ranked[:2]]]
    assert len(decision.ranked) == 5 >= choose.NAMED


def test_what_fails_is_said(tmp_path):
    cloud = Fleet(tmp_path, hv1={**MAKES, "virt.init": failed("no such image")})
    told = steps(cloud)
    with pytest.raises(errors.VirtError, match="no such image"):
        init(cloud).run()
    assert told[-1][0] == "failed"


def test_the_host_that_has_one_of_the_name_is_not_asked_to_make_another(tmp_path):
    has = {**HOST, "guests": guests(web1={})}
    cloud = Fleet(tmp_path, hv1={**MAKES, "virt.inventory": has})
    [why] = init(cloud).check().reasons
    assert why == "web1 already exists, on hv1"
    assert ("hv1", "virt.init") not in cloud.called


def test_no_guest_is_named_like_a_hypervisor(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES)
    cloud.opts["virt"] = {"hosts": "web*"}
    with pytest.raises(errors.InvalidInput, match="web1"):
        init(cloud).run()
    assert cloud.called == []


def test_a_host_that_is_busy_is_waited_for(tmp_path):
    """It may have a guest of the name, or be the best one."""
    cloud, how = Fleet(tmp_path, hv1=MAKES), []
    real = cloud.ask

    def ask(hosts, fun, kwarg=None, **options):
        how.append((fun, options.get("patient")))
        return real(hosts, fun, kwarg)

    cloud.ask = ask
    one = init(cloud)
    one.decide(one.init_request.request(), Reasons(first=True))
    assert how[0] == ("virt.inventory", True)


def test_what_is_at_work_on_the_name_is_a_reason(tmp_path, monkeypatch):
    def taken(_opts, name):
        raise errors.OperationFailed(f"{name} is being moved")

    monkeypatch.setattr(init_module.lock, "refuse_taken", taken)
    assert init(Fleet(tmp_path, hv1=MAKES)).check().reasons == ("web1 is being moved",)


def test_of_the_hosts_that_are_asked_for_alone_it_is_said_that_they_are_down(tmp_path):
    cloud = Fleet(tmp_path, hv1={"*": answer.silent("hv1", 15, busy=True)}, hv2=MAKES)
    one = init(cloud, name_is_free=True, host="hv2")
    assert one.decide(one.init_request.request(), Reasons(first=True))[0].rejected == {}
    assert list(one.unreachable) == ["hv1"]


def test_who_waits_is_told_for_whom(tmp_path):
    cloud = Fleet(tmp_path)
    told = steps(cloud)
    init(cloud).report_queued("4 at once")
    assert told == [("queued", "web1: waiting: 4 at once")]


def heard(cloud):
    """(function, what it is told, how) of each question to one host."""
    asked, real = [], cloud.call

    def one(host, fun, kwarg=None, **options):
        asked.append((fun, kwarg, options))
        return real(host, fun, kwarg)

    cloud.call = one
    return asked


def test_a_host_is_asked_whether_it_could_make_it(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES)
    one, asked = init(cloud), heard(cloud)
    one.decide(one.init_request.request(), Reasons(first=True))
    one.test_create("hv1")
    [(fun, told, how)] = asked
    assert (fun, told["test"], how) == ("virt.init", True, {"long": True})
    assert told["placement"] == one.cluster.terms("hv1").to_answer()


@pytest.mark.parametrize(("start", "waits"), [(True, "minion"), (False, "minion"), (True, None)])
def test_a_guest_that_was_started_is_waited_for(tmp_path, monkeypatch, start, waits):
    works = {**MAKES, "virt.power": STARTED}
    cloud = Fleet(tmp_path, hv1={**works, "virt.seed_eject": True})
    told, asked = steps(cloud), heard(cloud)
    monkeypatch.setattr(init_module.wait, "wait_for_answer", lambda *_asked: 3.2)
    monkeypatch.setattr(init_module.target, "reported", lambda _opts, _name: True)
    init(cloud, start=start, wait_for=waits).run()
    says = [
        ("waiting", "web1: waiting for its minion"),
        ("answered", "web1: its minion answered after 3 s"),
    ]
    eject = ("virt.seed_eject", {"name": "web1"}, {"long": True})
    assert (("hv1", "virt.power") in cloud.called) is start
    assert ([one for one in told if one in says] == says) is bool(start and waits)
    assert (eject in asked) is bool(start and waits)


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize("kind", ["minion", "address"])
def test_what_tells_a_guest_who_it_is_stays_until_its_own_minion_was_heard(
    tmp_path, monkeypatch, kind, reported
):
    cloud = Fleet(tmp_path, hv1={"virt.seed_eject": True})
    monkeypatch.setattr(init_module.wait, "wait_for_answer", lambda *_asked: 3.2)
    monkeypatch.setattr(init_module.target, "reported", lambda _opts, _name: reported)
    init(cloud).wait("hv1", kind)
    assert (("hv1", "virt.seed_eject") in cloud.called) is (kind == "minion" and reported)


@pytest.mark.parametrize(
    ("arguments", "handed"),
    [
        ({"seed": True}, True), ({}, True), ({"seed": False}, False),
        ({"seed": False, "graphics": {"password": "x"}}, True),
    ],
)  # fmt: skip
def test_a_host_hands_in_a_key_and_gets_what_is_secret_while_it_makes_the_guest(
    tmp_path, monkeypatch, arguments, handed
):
    cloud, around = Fleet(tmp_path, hv1=MAKES), []

    @contextlib.contextmanager
    def handing_in(*_asked):
        around.append("begun")
        yield
        around.append(("hv1", "virt.init") in cloud.called)

    monkeypatch.setattr(authorization, "key_permission", handing_in)
    started = []
    begun = type("Begun", (), {"mark_started": lambda self: started.append(True)})()
    one = init(cloud, arguments=arguments)
    one.cluster = ClusterSnapshot(cloud, BY)
    assert one.create_on("hv1", UndoStack(), begun).host == "hv1"
    assert around == (["begun", True] if handed else [])
    assert started == [True], "from now on it may run"


def test_a_host_that_answers_for_another_guest_has_made_none(tmp_path):
    made = {"name": "web2", "pub_key": None, "disks": []}
    cloud = Fleet(tmp_path, hv1={**MAKES, "virt.init": made, "virt.purge": {}})
    with pytest.raises(errors.OperationFailed, match="was asked for web1 and answered for 'web2'"):
        init(cloud).run()


def test_what_was_made_for_a_user_before_is_another_guest(tmp_path):
    """The process that was making one of that name for bob had died."""
    cloud = Fleet(tmp_path, hv1=MAKES)
    left = tmp_path / "virt/rights/making/web1"
    left.parent.mkdir(parents=True)
    left.write_text(json.dumps(owners.PendingGuest("bob", 1, 1, 1).to_answer()))
    assert [*owners.unrecorded(cloud.opts)] == ["web1"]
    init(cloud).run()
    assert owners.unrecorded(cloud.opts) == {}


def test_where_it_was_made_is_where_it_is_looked_for_first(tmp_path):
    cloud = Fleet(tmp_path, hv1=MAKES)
    init(cloud).run()
    assert location_cache.load(cloud.opts, "web1") == "hv1"


# -- one of many, whose hosts were asked before ----------------------------------------------------


def of_many(cloud, placed=False, **more):
    """(an Init with a picture of the hosts, its request): it has its place there, or lost it."""
    seen = ClusterSnapshot(cloud, BY)
    one = Init(cloud, BY, wanted(**more), Report(cloud, "web1", "init"), seen)
    if placed:
        seen.place_guest(cloud, one.init_request, one.init_request.request())
    return one, one.init_request.request()


@pytest.mark.parametrize("placed", [True, False])
def test_one_of_many_goes_where_it_was_placed_or_anew_when_that_host_is_gone(tmp_path, placed):
    one, request = of_many(counted.Cloud(tmp_path, 2), placed)
    decision, _ = one.decide(request, Reasons(first=True))
    assert decision.ranked[0].host == one.cluster.host_of("web1")
    assert (len(decision.ranked) == 1) is placed


def test_one_of_many_that_no_host_takes_any_more_is_refused(tmp_path):
    one, request = of_many(counted.Cloud(tmp_path, 2), labels={"rack": "a"})
    with pytest.raises(errors.Refused, match="no host can take web1: "):
        one.decide(request, Reasons(first=True))


@pytest.mark.parametrize("placed", [True, False])
def test_one_of_many_whose_key_somebody_else_got_meanwhile_is_refused(
    tmp_path, monkeypatch, placed
):
    monkeypatch.setattr(KeyStore, "status", lambda _store, _name: "accepted")
    one, request = of_many(counted.Cloud(tmp_path, 2), placed, arguments={"seed": True})
    with pytest.raises(errors.KeyRefused, match="already has an accepted key for web1"):
        one.decide(request, Reasons(first=True))
