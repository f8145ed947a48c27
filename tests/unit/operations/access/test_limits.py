"""Verbs called by a limited user: permission and result. The hosts are plain data."""

# ruff: noqa: F811
import uuid
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.operations.access import access_check, owners, set_owner
from saltvirt.operations.journal import intent_log
from saltvirt.placement.facts import DiskFootprint, Needs
from saltvirt.revert import UndoStack
from saltvirt.rights import confidential, grants
from tests.unit.operations.access.test_access_check import ask, fleet, opts  # noqa: F401
from tests.unit.placement.test_choose import guest, host

GRANTS = {"grants": [
    {"who": "bob", "verbs": ["start", "rename", "snapshot", "delete_snapshots", "query", "watch"],
     "guests": ["web*"]},
    {"who": "bob", "verbs": ["locate"], "guests": ["see*"]},
    {"who": ["bob", "BOB"], "verbs": ["init"], "guests": ["web*"], "images": ["salt://*"]},
    {"who": "all", "verbs": ["init", "start"], "everything": True},
], "quotas": {"bob": {"guests": 3, "vcpus": 9, "memory": "4M", "disk": "40K"}}}  # fmt: skip
NEEDS = Needs(disk_bytes=1024, pools={"ssd": 512}, disks=(DiskFootprint(256, "/x"),),
              vcpus=2, memory_kib=512, max_memory_kib=1024)  # fmt: skip


def id_of(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def one(name, owner=None, **more):
    return guest(name, uuid=id_of(name), **more), owner


class Cloud:
    """What all hosts say, and how they were asked."""

    def __init__(self, opts):
        self.opts, self.hosts, self.unreachable, self.asked = opts, [], {}, []

    def has(self, name, *guests, **more):
        for about, owner in guests:
            owners.set_owner(self.opts, about.uuid, about.name, owner)
        self.hosts.append(host(name, [about for about, _ in guests], **more))

    def gather(self, _fleet, guest=None, patient=False):
        self.asked.append((guest, patient))
        return self.hosts, self.unreachable


@pytest.fixture
def cloud(opts, fleet, monkeypatch):
    opts["virt"] = {"rights": GRANTS}
    found = Cloud(opts)
    found.has("hv1", one("web1"), one("see1"), one("db1"), one("web2"))
    found.has("hv2", one("web2"))
    monkeypatch.setattr(access_check.inventory, "gather", found.gather)
    return found


BREAKS = {}


def start(name, test=False, host=None):
    if BREAKS:
        reserve = confidential.sensitive("no host takes db1")
        text = f"{name} would break what HA keeps: {reserve}"
        if BREAKS["raises"]:
            raise errors.Refused(text)
        return {"result": True, "comment": text}
    return {"result": True, "comment": f"{name}: /x is used by db1", "type": type(name).__name__}


def rename(name, new=None):
    return {"new": new}


def snapshot(name, snapshot=None):
    return {"result": True}


def delete_snapshots(name, *names, **kwargs):
    return {"names": names}


def watch(digest=None):
    return {"all": "of db1, needed by x"}


def query(*args, **kwargs):
    return {"hv1": {"vm_info": {"web1": {}, "db1": {}}}, "hv2": [], "retcode": 0}


def where(name):
    return {}


def evacuate(host=None):
    return {}


def test_a_guest_of_the_users_is_acted_on_and_no_other_is_named(ask, cloud):
    told = ask("bob", start, "web1")
    assert told == {"result": True, "comment": "web1: /x is used by somebody", "type": "str"}
    assert cloud.asked == [(None, False)]
    assert ask("all", start, "db1")["comment"].endswith("used by somebody") is False


@pytest.mark.parametrize("raises", [False, True])
def test_a_part_that_tells_of_others_is_cut_by_its_mark(ask, cloud, raises, monkeypatch):
    """Whatever the words around it are; who may do it to all guests reads all of it."""

    monkeypatch.setitem(BREAKS, "raises", raises)

    def said(user):
        try:
            return ask(user, start, "web1")["comment"]
        except errors.Refused as exc:
            return exc.reason

    assert said("bob") == "web1 would break what HA keeps: somebody"
    assert said("all") == "web1 would break what HA keeps: no host takes db1"


@pytest.mark.parametrize("name", ["db1", "gone"])
def test_what_is_not_seen_is_not_there(ask, cloud, fleet, name):
    with pytest.raises(errors.NotFound) as failed:
        ask("bob", start, name)
    assert failed.value.text == f"no guest {name!r} on any hypervisor"
    cloud.unreachable = {"hv9": "gone", "hv3": "gone"}
    with pytest.raises(errors.NotFound) as failed:
        ask("bob", start, name)
    assert failed.value.text.endswith("on any hypervisor that answered (not: hv3, hv9)")
    assert next(about for about in fleet.done if about != "left")[1]["guest"] == name
    assert "rests" not in fleet.done


def test_what_is_seen_and_not_granted_is_denied(ask, cloud):
    with pytest.raises(errors.Denied, match=r"bob may not call virt.start of see1$"):
        ask("bob", start, "see1")
    with pytest.raises(errors.Denied, match=r"bob may not call virt.evacuate$"):
        ask("bob", evacuate, "hv1")
    with pytest.raises(errors.Denied, match=r"all may not call virt.snapshot$"):
        ask("all", snapshot, "web1")
    assert cloud.asked == [(None, False)]


def test_what_acts_on_the_whole_cloud_is_denied_whatever_was_read_of_grants(
    ask, cloud, monkeypatch
):
    """virt:rights grants it with everything alone; this does not rely on that."""
    one = grants.Grant(frozenset({"bob"}), frozenset({"evacuate"}), guests=("*",))
    monkeypatch.setattr(
        access_check, "_user_rights", lambda _opts, user: grants.UserRights(user, (one,))
    )
    for given in ({}, {"host": "hv1"}):
        with pytest.raises(errors.Denied, match=r"bob may not call virt.evacuate$"):
            ask("bob", evacuate, **given)
    assert cloud.asked == []


def test_on_two_hosts_it_must_be_the_users_on_both(ask, cloud):
    twin = one("web2")[0]
    cloud.hosts[1] = host("hv2", [twin.__class__("web2", uuid=id_of("other"))])
    assert ask("bob", start, "web2")["result"] is True
    cloud.opts["virt"]["rights"]["grants"].append({"who": "eve", "verbs": ["start"], "owned": True})
    owners.set_owner(cloud.opts, id_of("web2"), "web2", "eve")
    try:
        with pytest.raises(errors.NotFound):
            ask("eve", start, "web2")
        owners.set_owner(cloud.opts, id_of("other"), "web2", "eve")
        assert ask("eve", start, "web2")["result"] is True
    finally:
        del cloud.opts["virt"]["rights"]["grants"][-1]


def test_who_may_do_it_to_one_of_two_of_a_name_does_it_to_none(ask, cloud):
    twin = one("web2")[0]
    cloud.hosts[1] = host("hv2", [twin.__class__("web2", uuid=id_of("other"))])
    cloud.opts["virt"] = {"rights": {"grants": [
        {"who": "eve", "verbs": ["start"], "owned": True},
        {"who": "eve", "verbs": ["locate"], "guests": ["web*"]},
    ]}}  # fmt: skip
    owners.set_owner(cloud.opts, id_of("web2"), "web2", "eve")
    with pytest.raises(errors.Denied, match=r"virt.start of web2$"):
        ask("eve", start, "web2")


def test_a_new_name_is_one_that_is_granted_and_not_somebody_elses(ask, cloud):
    assert ask("bob", rename, "web1", "web9") == {"new": "web9"}
    with pytest.raises(errors.Denied, match=r"virt.rename for a guest db9$"):
        ask("bob", rename, "web1", "db9")
    cloud.opts["virt"] = {"rights": {"grants": [
        {"who": "bob", "verbs": ["rename"], "guests": ["web1"]},
        {"who": "bob", "verbs": ["rename"], "owned": True},
    ]}}  # fmt: skip
    with pytest.raises(errors.Denied, match="for a guest web2"):
        ask("bob", rename, "web1", "web2")
    cloud.opts["virt"]["rights"]["grants"].append(
        {"who": "bob", "verbs": ["init"], "guests": ["web*"]}
    )
    with pytest.raises(errors.Denied, match="for a guest web2"):
        ask("bob", rename, "web1", "web2")
    with pytest.raises(errors.InvalidInput):
        ask("bob", rename, "web1", "../x")
    with pytest.raises(errors.InvalidInput):
        ask("bob", rename, "a/b", "web9")


def test_a_granted_name_that_somebody_else_has_is_not_free(ask, cloud):
    """A guest made under it is seen by nobody but by its owner: names alone grant no sight here."""
    cloud.opts["virt"] = {"rights": {"grants": [
        {"who": "bob", "verbs": ["init"], "guests": ["new*"], "images": ["*"]},
    ]}}  # fmt: skip
    cloud.has("hv3", one("new1", "eve"))
    with pytest.raises(errors.AlreadyExists, match=r"^the name new1 is in use$"):
        ask("bob", init, "new1")


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "why"),
    [
        (start, ["web1"], {"host": "hv1"}, "with host"),
        (start, ["web1"], {"test": True}, None),
        (snapshot, ["web1", "s1"], {}, None), (snapshot, ["web1", None], {}, None),
        (snapshot, ["web1", "../s"], {}, "with snapshot='../s'"),
        (snapshot, ["web1", ["s1", "-s"]], {}, "with snapshot='-s'"),
        (snapshot, ["web1", ("s1", "s2")], {}, None),
        (delete_snapshots, ["web1", "s1", "s2"], {"__pub_user": "x"}, None),
        (delete_snapshots, ["web1"], {"all": True}, None),
        (delete_snapshots, ["web1"], {"connection": "x"}, "with connection"),
        (delete_snapshots, ["web1", "s1", "/s"], {}, "with names='/s'"),
    ],
)  # fmt: skip
def test_arguments_that_are_not_for_users(ask, cloud, function, args, kwargs, why):
    if why:
        with pytest.raises(errors.Denied, match=f"may not call virt.{function.__name__} {why}$"):
            ask("bob", function, *args, **kwargs)
        assert cloud.asked == []
    else:
        assert ask("bob", function, *args, **kwargs)


def connected(name, connection=None, **kwargs):
    return {name: kwargs}


@pytest.mark.parametrize("word", ["connection", "username", "password"])
def test_no_user_chooses_the_libvirt_that_a_host_asks(ask, cloud, monkeypatch, word):
    """Its address can name a program that the host runs as root."""
    address = "qemu+ext:///system?command=/tmp/x"
    monkeypatch.setattr(connected, "__name__", "start")
    with pytest.raises(errors.Denied, match=f"^all may not call virt.start with {word}$"):
        ask("all", connected, "web1", **{word: address})
    assert ask("all", connected, "web1", overcommit=True)


def test_listings_are_cut_and_what_tells_of_none_asks_nobody(ask, cloud):
    assert ask("bob", watch) == {"all": "of db1, needed by x"}
    assert cloud.asked == []
    assert ask("bob", query) == {
        "hv1": {"vm_info": {"web1": {}}}, "hv2": {"error": "invalid answer"},
        "retcode": 0,
    }  # fmt: skip


def test_whose_guests_those_of_a_state_are():
    about = {"running": ["web1", "db1"], "paused": ["db1"], "retcode": 7}
    assert access_check._visible_part(about, {"web1"}) == {"running": ["web1"]}
    assert access_check._visible_part({"error": "of db1", "running": ["web1"]}, {"web1"}) == {
        "error": "invalid answer"}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("/x is needed by db1: it", "/x is needed by somebody"), (7, 7), (None, None),
        ({"a": ["/x is a disk of db1"]}, {"a": ["/x is a disk of somebody"]}),
        (("virt.init of db1, process 7 of root; of x",),
         ["virt.init of a guest, process 7 of root; of x"]),
    ],
)  # fmt: skip
def test_no_answer_names_who_has_a_disk_or_is_at_work(told, said):
    assert access_check.redact(told) == said


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("/vms/web1 on hv1 stays: it cannot be proven to be unused: what db1 needs is not "
         "known: cannot read /vms/db1; and 3 more",
         "/vms/web1 on hv1 stays: it cannot be proven to be unused: the reasons concern "
         "other guests"),
        ("web1: it would violate virt:ha:reserve: if hv1 died, no host would take db1, db2; go on",
         "web1: it would violate virt:ha:reserve: capacity is reserved for other guests; go on"),
        ("hv1: already has db1 of group sql; hv2: is down",
         "hv1: already has somebody of group sql; hv2: is down"),
    ],
)  # fmt: skip
def test_the_words_of_an_event_name_no_guest_of_others(told, said):
    """A page is told of events, whose parts are marked nowhere."""
    assert access_check.redact({"message": told}) == {"message": said}
    assert access_check.redact(said) == said


# -- guests that are made --------------------------------------------------------------------------

MADE = {}


def init(name, cpu=1, mem=64, image="salt://a", hypervisor="kvm", host=None, seed=True,
         nic="default", install=True, start=True, disk="default", saltenv="base",
         enable_vnc=False, seed_cmd="seed.apply", enable_qcow=False, **kwargs):  # fmt: skip
    return MADE["call"](name)


@pytest.fixture
def makes(cloud, opts, monkeypatch):
    """Guests that are made are on hv3; under_way: what counted meanwhile."""
    cloud.hosts[0] = host("hv1", cloud.hosts[0].guests, needs=NEEDS)
    cloud.under_way = {}

    def call(name):
        names = name if isinstance(name, list) else str(name).split(",")
        cloud.under_way = owners.being_made(opts)
        cloud.has("hv3", *(one(name) for name in names if name != "web8"))
        return {name: {"result": name != "web7", "comment": "of db1, process 1", "host": "hv3"}
                for name in names}  # fmt: skip

    monkeypatch.setitem(MADE, "call", call)
    return lambda: monkeypatch.setitem(MADE, "call", call)


def test_what_a_user_has_made_is_his(ask, cloud, makes, opts):
    told = ask("bob", init, "web9")
    assert told == {"web9": {"result": True, "comment": "of a guest, process 1", "host": "hv3"}}
    assert owners.load(opts, id_of("web9")).owner == "bob"
    assert cloud.under_way == {"web9": owners.PendingGuest("bob", 2, 1024, 1024 + 512 + 256)}
    assert owners.being_made(opts) == {}
    asked = {"name": "web9", "cpu": 1, "mem": 64, "image": "salt://a", "hypervisor": "kvm",
             "nic": "default", "disk": "default", "enable_qcow": False, "seed": True}  # fmt: skip
    assert cloud.asked == [(asked, True), (None, False)]


def made(cloud, name, says, has):
    """says: the host, by the answer. has: (host, guest, whose UUID it tells) of what is new."""
    for at, its, *of in has:
        whose = id_of(of[0] if of else its) if of != [None] else "no UUID"
        cloud.hosts.append(host(at, [guest(its, uuid=whose)]))
    return {name: {"result": True, "comment": "made", **({"host": says} if says else {})}}


@pytest.mark.usefixtures("makes")
def test_what_a_host_has_made_alone_is_his(ask, cloud, opts, monkeypatch):
    there = [("hv3", "web9"), ("hv4", "web8")]
    monkeypatch.setitem(MADE, "call", lambda name: made(cloud, name, "hv3", there))
    ask("bob", init, "web9")
    assert [owners.load(opts, id_of(name)).owner for name in ("web9", "web8")] == ["bob", None]


@pytest.mark.usefixtures("makes")
@pytest.mark.parametrize(
    ("says", "has"),
    [
        ("hv1", [("hv3", "web9")]),  # that host has none
        ("hv3", [("hv3", "web9", "db1")]),  # it says the UUID of another guest
        ("hv3", [("hv3", "web9"), ("hv2", "web8", "web9")]),  # so do two at once
        ("hv3", [("hv3", "web9", None)]),
        (None, [("hv3", "web9")]),
    ],
)
def test_what_its_host_does_not_say_well_is_nobodys(ask, cloud, opts, monkeypatch, says, has):
    """By a wrong UUID another one's guest would be his."""
    monkeypatch.setitem(MADE, "call", lambda name: made(cloud, name, says, has))
    said = ask("bob", init, "web9")["web9"]
    assert said["result"] is True
    assert said["comment"].endswith(
        "; the master could not record you as its owner: its operator can run salt-run "
        "virt.set_owner web9 bob"
    )
    assert {owners.load(opts, id_of(name)).owner for name in ("web9", "db1")} == {None}


def full(_opts, _uuid, _guest, owner):
    if owner:
        raise OSError(28, "No space left on device")


@pytest.mark.usefixtures("cloud", "makes")
def test_a_full_disk_hides_no_guest_that_was_made(ask, opts, monkeypatch):
    monkeypatch.setattr(owners, "set_owner", full)
    said = ask("bob", init, "web9")["web9"]
    assert said["result"] is True and "could not record you as its owner" in said["comment"]


def unrecorded(ask, cloud, opts, monkeypatch):
    """web9 was made for bob, whom the master could not record as its owner."""
    with monkeypatch.context() as patch:
        patch.setattr(owners, "set_owner", full)
        ask("bob", init, "web9")
    assert owners.load(opts, id_of("web9")).owner is None and owners.being_made(opts) == {}


def test_a_guest_whose_owner_was_not_recorded_counts(ask, cloud, makes, opts, monkeypatch):
    unrecorded(ask, cloud, opts, monkeypatch)
    for who in ("bob", "BOB"):
        with pytest.raises(errors.Denied, match="guests: 1 of 3 used, 3 more requested"):
            ask(who, init, "web21,web22,web23")
    assert ask("bob", init, "web21,web22")


@pytest.mark.parametrize("is_told", [True, False])
def test_a_guest_whose_host_fell_silent_counts_if_it_is_there(
    ask, cloud, makes, opts, monkeypatch, is_told
):
    """Its host was asked to make it, and did not answer; of web10 it said that it made none."""

    def fail(name):
        intent_log.PendingCreate(opts, "web9", "virt.init", UndoStack()).record_host("hv3")
        if not is_told:
            raise errors.ConnectionFailed("hv3: no answer")
        return {one: {"result": False, "comment": ""} for one in name.split(",")}

    monkeypatch.setitem(MADE, "call", fail)
    if is_told:
        ask("bob", init, "web9,web10")
    else:
        with pytest.raises(errors.ConnectionFailed):
            ask("bob", init, "web9,web10")
    makes()
    assert [*owners.unrecorded(opts)] == ["web9"]
    cloud.has("hv3", one("web9"), one("web10"))
    with pytest.raises(errors.Denied, match="guests: 1 of 3 used, 3 more requested"):
        ask("bob", init, "web21,web22,web23")


@pytest.mark.parametrize("owner", ["%web", "*"])
def test_the_owner_of_a_guest_is_one_user(opts, owner):
    """Nobody is called so, and the guest would be without an owner."""
    with pytest.raises(errors.InvalidInput, match="owner must be one user, not"):
        set_owner.SetOwner(mock.Mock(opts=opts), "web9", owner).run()


def killed(opts, name):
    """What a process that died has left of the guest that it was making for bob."""
    with owners.making(opts, {name: owners.PendingGuest("bob", 1, 1, 1)}):
        path = Path(opts["cachedir"], "virt/rights/making", name)
        text = path.read_text()
    path.write_text(text)


def test_a_guest_of_a_process_that_died_counts(ask, cloud, makes, opts):
    cloud.has("hv4", one("web9"))
    killed(opts, "web9")
    killed(opts, "web10")
    assert not access_check.is_making(opts, "bob", "web9")
    with pytest.raises(errors.Denied, match="guests: 1 of 3 used, 3 more requested"):
        ask("bob", init, "web21,web22,web23")
    assert [*owners.unrecorded(opts)] == ["web9"], "there is no other one"


@pytest.mark.parametrize("end", ["purged", "own", "nobody", "given"])
def test_until_it_is_gone_or_its_owner_is_known(ask, cloud, makes, opts, monkeypatch, end):
    unrecorded(ask, cloud, opts, monkeypatch)
    if end == "purged":
        cloud.hosts = [one for one in cloud.hosts if one.name != "hv3"]
    elif end == "given":
        owners.set_owner(opts, id_of("web9"), "web9", "eve")
    else:
        monkeypatch.setattr(set_owner, "_uuid", lambda _fleet, _name: id_of("web9"))
        set_owner.SetOwner(mock.Mock(opts=opts), "web9", "eve" if end == "own" else None).run()
    assert ask("bob", init, "web21,web22,web23")
    assert owners.unrecorded(opts) == {}


@pytest.mark.usefixtures("makes")
def test_what_is_written_down_of_a_guest_that_is_away_stays(ask, cloud, opts, monkeypatch):
    """Its host does not answer just now."""
    owners.set_owner(opts, id_of("web9"), "gone1", "eve")
    there = [("hv3", "web9")]
    monkeypatch.setitem(MADE, "call", lambda name: made(cloud, name, "hv3", there))
    ask("bob", init, "web9")
    assert owners.load(opts, id_of("web9")) == owners.Owner("gone1", "eve")


def test_what_failed_and_what_was_there_before_is_nobodys(ask, cloud, makes, opts, monkeypatch):
    ask("bob", init, "web7")
    assert len(cloud.asked) == 1, "nothing was created: nobody is asked what was"
    ask("bob", init, "web7,web8")
    assert [owners.load(opts, id_of(name)).owner for name in ("web7", "web8")] == [None, None]
    monkeypatch.setitem(MADE, "call", lambda name: cloud.has("hv3", one("web9")) or {"retcode": 1})
    ask("bob", init, "web9")
    assert owners.load(opts, id_of("web9")).owner is None, "nobody said that it was made"
    makes()
    owners.set_owner(opts, id_of("web1"), "web1", "eve")
    ask("bob", init, "web1")
    assert owners.load(opts, id_of("web1")).owner is None, "as its host says it was made anew"


@pytest.mark.parametrize(
    ("who", "has", "count", "why"),
    [
        ("bob", {}, 3, None), ("bob", {}, 4, "guests: 0 of 3 used, 4 more requested"),
        ("bob", {"vcpus": 6, "memory_kib": 1}, 1, None),
        ("bob", {"vcpus": 8, "memory_kib": 1}, 1, "vCPUs: 8 of 9 used, 2 more requested"),
        ("bob", {"memory_kib": 3073}, 1, "memory: .* of 4 MiB used"),
        ("bob", {"memory_kib": 1, "max_memory_kib": 3073}, 1, "memory: .* of 4 MiB used"),
        ("bob", {"memory_kib": 1, "disks": (DiskFootprint(40_000, "/i"),)}, 1, "disk: .* of 40"),
        ("bob", {"vcpus": 0, "memory_kib": 0}, 2, None),
        ("bob", {"vcpus": 7, "memory_kib": 0}, 1, None),
        ("BOB", {"vcpus": 8, "memory_kib": 1}, 1, "vCPUs: 8 of 9 used"),
    ],
)  # fmt: skip
def test_the_quota_counts_what_a_person_has(ask, cloud, makes, opts, who, has, count, why):
    if has:
        cloud.has("hv4", one("web5", "bob", **{"vcpus": 1, **has}), one("web6", "eve", vcpus=99))
    names = ",".join(f"web2{number}" for number in range(count))
    if why is None:
        assert ask(who, init, names)
        return
    with pytest.raises(errors.Denied, match=f"the quota of {who} would be exceeded: {why}"):
        ask(who, init, names)
    assert owners.being_made(opts) == {}


def test_a_guest_that_takes_nothing_counts_as_nothing(ask, cloud, makes):
    cloud.has("hv4", one("web5", "bob", vcpus=0, memory_kib=0),
              one("web6", "bob", vcpus=7, memory_kib=1))  # fmt: skip
    assert ask("bob", init, "web21")


def test_what_is_on_two_hosts_or_being_made_and_there_counts_once(ask, cloud, makes, opts):
    cloud.has("hv4", one("web5", "bob", vcpus=4, memory_kib=1))
    cloud.has("hv5", one("web5", "bob", vcpus=4, memory_kib=1))
    with (
        owners.making(opts, {"web6": owners.PendingGuest("Bob", 4, 9, 9),
                             "web7": owners.PendingGuest("eve", 9, 9, 9)}),
        pytest.raises(errors.Denied, match="vCPUs: 8 of 9"),
    ):  # fmt: skip
        ask("bob", init, "web22")
    with owners.making(opts, {"web5": owners.PendingGuest("bob", 9, 9, 9)}):
        assert ask("bob", init, "web21")


def test_what_is_being_made_counts_whoever_has_a_guest_of_the_name(ask, cloud, makes, opts):
    cloud.has("hv4", one("web6", "eve"))
    with (
        owners.making(opts, {"web6": owners.PendingGuest("bob", 8, 9, 9)}),
        pytest.raises(errors.Denied, match="vCPUs: 8 of 9"),
    ):
        ask("bob", init, "web22")


def test_the_host_on_which_it_takes_most_counts(ask, cloud, makes):
    cloud.hosts[1] = host("hv2", needs=Needs(vcpus=10, memory_kib=1))
    with pytest.raises(errors.Denied, match="vCPUs: 0 of 9 used, 10 more requested"):
        ask("bob", init, "web9")


def test_disks_that_are_given_one_by_one_count_too(ask, cloud, makes):
    """They are for who has no limit but a quota."""
    disks = [{"name": "data", "size": 10**6}]
    ask("all", init, "db9", disks=disks)
    assert cloud.asked[0][0]["disks"] == disks


def test_a_name_that_is_being_made_is_not_free(ask, cloud, makes, opts):
    for who in ("bob", "all"):
        with (
            owners.making(opts, {"web9": owners.PendingGuest("eve", 1, 1, 1)}),
            pytest.raises(errors.AlreadyExists, match="a guest is being created"),
        ):
            ask(who, init, "web8,web9")


def test_with_a_quota_all_hosts_must_answer_and_one_must_know(ask, cloud, makes):
    cloud.unreachable = {"hv9": "gone", "hv3": "gone"}
    with pytest.raises(errors.Refused, match=r"the guests of bob are unknown while .*: hv3, hv9"):
        ask("bob", init, "web9")
    assert ask("all", init, "db9")
    cloud.unreachable = {}
    cloud.hosts = [host("hv1"), host("hv2", needs=Needs(problem="no such image"))]
    with pytest.raises(errors.Refused, match="no host can compute what the guest would take"):
        ask("bob", init, "web9")


def test_who_has_no_limit_makes_whatever_is_asked_for_and_it_is_his(ask, cloud, makes, opts):
    assert ask("all", init, "db9", image="/x", host="hv1", cpu={"maximum": 4}, saltenv="x")
    assert owners.load(opts, id_of("db9")).owner == "all"
    assert cloud.under_way == {"db9": owners.PendingGuest("all", 0, 0, 0)}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"image": "/etc/shadow"}, "of /etc/shadow with disk=default nic=default"),
        ({"disk": "big"}, "with disk=big"), ({"nic": "lan"}, "nic=lan"),
        ({"cpu": {"a": 1}}, "with cpu="), ({"mem": [1]}, "with mem="), ({"seed": "x"}, "seed='x'"),
        ({"start": 1}, "with start=1"), ({"enable_qcow": None}, "with enable_qcow=None"),
        ({"name": "db9"}, "for a guest db9$"), ({"name": ["web9", "db9"]}, "for a guest db9$"),
        ({"pillar": {}}, "with pillar"),
    ],
)  # fmt: skip
def test_what_a_guest_may_not_be_made_of(ask, cloud, makes, more, why):
    with pytest.raises(errors.Denied, match=why):
        ask("bob", init, **{"name": "web9", **more})
    assert cloud.asked == []
