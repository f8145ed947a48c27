"""An interrupted migration that an operator ends: the hosts that are asked, and the guest's key."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.answers.migration import RecoveryResult, UnfinishedMigration
from saltvirt.fleet.answer import FAILED, Answer, down
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.journal import lock
from saltvirt.operations.move import recover, target_leftovers
from tests.fakes.fleet import Fleet, Told


class Cloud(Fleet):
    """guests: host to {name: state}, None for a host that is down."""

    def __init__(self, tmp_path, **guests):
        super().__init__(tmp_path)
        self.guests, self.unfinished, self.known, self.left = guests, {}, {}, {}
        self.says = {"outcome": "undone", "leftovers": {}, "deleted": []}
        self.asked, self.moves = [], None
        self.processes, self.no_libvirt, self.uuids = {}, [], {}

    def hosts(self, only=None):
        return sorted(self.guests)

    def ask(self, hosts, fun, kwarg=None, **_options):
        for host in hosts:
            said = self.said(host, fun, kwarg)
            yield said if isinstance(said, Answer) else Answer(host, said)

    def said(self, host, fun, kwarg):
        has = self.guests[host]
        if has is None:
            return down(host)
        if fun == "virt.running_names":
            return self.processes.get(host, [])
        if host in self.no_libvirt:
            return Answer(host, error="libvirt does not answer", kind=FAILED)
        if fun == "virt.migrate_unfinished":
            return self.known.get(host, {})
        return {
            "guests": has, "unfinished": self.unfinished.get(host, []),
            "target_leftovers": self.left.get(host, []), "uuids": self.uuids.get(host, {}),
        }  # fmt: skip

    def call(self, host, fun, kwarg=None, *, long=None, **_options):
        if fun == "virt.migrate_clean":
            return {}
        assert lock.guest_owner(self.opts, kwarg["vm_"]).startswith("virt.migrate_recover, process")
        self.asked.append((host, fun, kwarg, long))
        if self.moves:
            self.guests = self.moves
        return dict(self.says)


@pytest.fixture
def moved(monkeypatch):
    """What the master is told of keys."""
    told = []
    monkeypatch.setattr(KeyStore, "rebind", lambda _self, *about: told.append(about))
    return told


def test_its_host_is_asked_and_the_key_follows_the_guest(tmp_path, moved):
    cloud, report = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}), Told()
    cloud.unfinished = {"hv1": ["web1"]}
    cloud.moves = {"hv1": {}, "hv2": {"web1": "running"}}
    host, found = recover.recover(cloud, "web1", report)
    assert (host, found.outcome, report.steps) == ("hv1", "undone", [])
    assert cloud.asked == [("hv1", "virt.migrate_recover", {"vm_": "web1"}, True)]
    assert moved == [("web1", "hv1", "hv2")]


def test_a_host_whose_libvirt_alone_is_down_is_not_lost(tmp_path, moved):
    """Its QEMU runs the guest, and libvirt's files there say so."""
    cloud, report = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}), Told()
    cloud.unfinished, cloud.no_libvirt = {"hv1": ["web1"]}, ["hv2"]
    cloud.processes = {"hv2": ["web1"]}
    with pytest.raises(errors.InvalidInput, match="hv2 is not lost: its minion answers"):
        recover.recover(cloud, "web1", report, lost="hv2")
    assert (cloud.asked, report.steps) == ([], [])
    cloud.processes = {}
    assert recover.recover(cloud, "web1", report, lost="hv2")[0] == "hv1"
    [(_, words)] = report.steps
    assert words.endswith(
        "; its minion answers: by libvirt's files, no process of web1 is running there"
    )


def test_of_an_address_that_is_said_to_be_lost_any_host_may_be_the_one(tmp_path, moved):
    """The migration was begun with a URI, so the host's name is not in its journal."""
    cloud, report = Cloud(tmp_path, hv1={"web1": "running"}, hv2={}, hv3={}), Told()
    cloud.unfinished, cloud.no_libvirt = {"hv1": ["web1"]}, ["hv2"]
    cloud.processes = {"hv1": ["web1"], "hv2": ["web1"]}
    with pytest.raises(errors.InvalidInput, match="hv2 is not lost: its minion answers"):
        recover.recover(cloud, "web1", report, lost="10.0.0.2")
    assert (cloud.asked, report.steps) == ([], [])
    cloud.processes = {"hv1": ["web1"]}
    assert recover.recover(cloud, "web1", report, lost="10.0.0.2")[0] == "hv1"


@pytest.mark.parametrize("places", [{"hv1": {"web1": "x"}, "hv2": {"web1": "x"}}, {"hv1": {}}])
def test_of_a_guest_that_is_not_in_one_place_the_key_stays_whose_it_is(tmp_path, moved, places):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.unfinished, cloud.moves = {"hv1": ["web1"]}, places
    recover.recover(cloud, "web1", Told())
    assert moved == []


def test_where_only_a_target_has_something_no_host_ends_a_migration(tmp_path, moved):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.left = {"hv2": ["web1"]}
    host, found = recover.recover(cloud, "web1", Told())
    assert (host, found.to_answer()) == (None, {"leftovers": {}, "deleted": [], "retained": {}})
    assert (cloud.asked, moved) == ([], [])


def test_a_host_that_a_person_gives_up_is_told_to_the_guests(tmp_path):
    cloud, report = Cloud(tmp_path, hv1={"web1": "running"}, hv2=None), Told()
    cloud.unfinished = {"hv1": ["web1"]}
    recover.recover(cloud, "web1", report, lost="hv2")
    asked = {"vm_": "web1", "lost": "hv2"}
    assert cloud.asked == [("hv1", "virt.migrate_recover", asked, True)]
    assert report.steps == [
        ("lost", "web1: its migration ends without hv2, which the operator declared lost")
    ]


def test_a_host_that_has_the_guest_is_not_given_up(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={"web1": "paused"})
    cloud.unfinished = {"hv1": ["web1"]}
    with pytest.raises(errors.InvalidInput, match="hv2 answers, and web1 is paused there"):
        recover.recover(cloud, "web1", Told(), lost="hv2")
    assert cloud.asked == []


def test_who_knows_of_something_left_for_this_guest_is_asked(tmp_path):
    cloud = Cloud(tmp_path, hv1={}, hv2={}, hv3=None)
    one = {"target": "qemu+tls://hv3/system", "at_work": False}
    cloud.known = {"hv1": {"web10@hv3": one, "web1": one}, "hv2": {"x": one, "web1@hv3": one}}
    assert recover.recover(cloud, "web1", Told())[0] == "hv2"
    fact = UnfinishedMigration("qemu+tls://hv3/system")
    known = {"hv1": {"web10@hv3": fact, "web1": fact}, "hv2": {"x": fact, "web1@hv3": fact}}
    assert recover.unfinished(cloud) == (known, {"hv3": down("hv3").error})
    del cloud.known["hv1"], known["hv1"]
    assert recover.unfinished(cloud)[0] == known
    cloud.known["hv1"] = {"web1": {"target": 7}}
    assert recover.unfinished(cloud)[1]["hv1"].endswith("expects: web1.target is not text")


def test_a_check_says_what_would_end_and_where_the_guest_is(tmp_path):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={"web1": "paused"}, hv3={})
    cloud.unfinished = {"hv1": ["web1"]}
    cloud.known = {"hv1": {"web1": {"target": "qemu+tls://hv2/system"}}}
    checked = recover.check(cloud, "web1")
    assert checked.comment == (
        "the migration of web1 from hv1 to hv2 would be ended; web1 is running on hv1; "
        "web1 is paused on hv2"
    )
    assert (checked.reasons, checked.details) == ((), {"host": "hv1"})
    [reason] = recover.check(cloud, "web1", lost="hv2").reasons
    assert reason == "hv2 answers, and web1 is paused there"
    cloud.known["hv1"]["web1"]["at_work"] = True
    [reason] = recover.check(cloud, "web1").reasons
    assert "from hv1 is under way: salt-run virt.migrate_abort web1" in reason
    [reason] = recover.check(cloud, "web2").reasons
    assert reason == "no host that answers has an unfinished migration of web2"
    cloud.guests, cloud.known = {"hv1": {}, "hv2": {}}, {}
    assert recover.check(cloud, "web1").comment == (
        "the migration of web1 from hv1 would be ended; no host has web1: give removed=True if it "
        "was removed on purpose"
    )
    assert cloud.asked == []


@pytest.mark.parametrize("lost", [None, "hv2"])
def test_where_nothing_is_unfinished_it_is_said_who_was_not_asked(tmp_path, lost):
    cloud = Cloud(tmp_path, hv1={"web1": "running"}, hv2={})
    cloud.left = {"hv2": ["web1"]} if lost else {}
    with pytest.raises(errors.OperationFailed) as caught:
        recover.recover(cloud, "web1", Told(), lost=lost)
    said = "no host that answers has an unfinished migration of web1"
    assert caught.value.text == said
    cloud.guests["hv2"] = None
    with pytest.raises(errors.OperationFailed) as caught:
        recover.recover(cloud, "web1", Told(), lost=lost)
    assert caught.value.text == f"{said}; not asked: hv2: {down('hv2').error}"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"outcome": "moved", "leftovers": {}}, "web1 is on the target; hv1 was cleaned"),
        ({"outcome": "undone", "leftovers": {}}, "web1 is on hv1; the target was cleaned"),
        ({"leftovers": {}}, "web1: it has no unfinished migration"),
        (
            {
                "outcome": "undone",
                "leftovers": {"hv3": "b", "hv2": "a"},
                "retained": {"/x": "used"},
            },
            "web1 is on hv1; /x stays: used; files may be left on hv2: a; "
            "files may be left on hv3: b; run salt-run virt.migrate_recover web1 again",
        ),
    ],
)
def test_what_was_done_is_one_sentence(found, said):
    assert recover.recovery_text("web1", "hv1", RecoveryResult(**found)) == said


def test_what_is_unfinished_is_one_sentence():
    assert recover.unfinished_text({}, {}) == "no migration is unfinished"
    one = UnfinishedMigration("hv3")
    found = {"hv2": {"b": one}, "hv1": {"a": one}}
    assert recover.unfinished_text(found, {"hv4": "down", "hv3": "x"}) == (
        "unfinished migrations: a, b; hv3 was not asked: x; hv4 was not asked: down"
    )


# -- what it has left on targets ----------------------------------------------------------


class Targets:
    """says: host to what its virt.migrate_clean answers, an error, or nothing."""

    def __init__(self, **says):
        self.opts, self.says, self.asked = {}, says, []

    def hosts(self):
        return sorted(self.says)

    def ask(self, hosts, fun, kwarg=None, **_options):
        self.asked.append((fun, *hosts))
        for host in hosts:
            names = [] if host == "hv9" else ["web1", "db1"]
            yield Answer(host, {"guests": {}, "unfinished": [], "target_leftovers": names})

    def call(self, host, fun, kwarg=None, *, long=None, **_options):
        assert (fun, kwarg["vm_"]) == ("virt.migrate_clean", "web1")
        self.asked.append((host, kwarg.get("test", False), long))
        if isinstance(self.says[host], Exception):
            raise self.says[host]
        return {"delete": []} if kwarg.get("test") and self.says[host] else self.says[host]


DONE = {"deleted": ["/a"], "retained": {"/b": "used by db1"}}


def test_a_target_is_asked_first_what_it_has_and_not_to_delete_nothing():
    cloud = Targets(hv1=DONE, hv2={})
    assert target_leftovers.clean(cloud, "hv1", "web1") == (["/a"], {"/b": "used by db1"})
    assert cloud.asked == [("hv1", True, False), ("hv1", False, True)]
    assert target_leftovers.clean(cloud, "hv2", "web1") == ([], {})
    assert cloud.asked[2:] == [("hv2", True, False)]


def test_a_target_that_fails_is_named_and_the_others_are_cleaned():
    broken = errors.OperationFailed("it broke")
    cloud = Targets(hv0=DONE, hv1=broken, hv2={"deleted": ["/c"], "retained": {}}, hv9=DONE)
    gone, stay, left = target_leftovers.clean_everywhere(cloud, "web1")
    assert (gone, stay) == (["/a", "/c"], {"/b": "used by db1"})
    assert left == {"hv0": "/b stays: used by db1", "hv1": "it broke"}
    assert "hv9" not in [host for host, *_ in cloud.asked]


def test_hosts_that_are_updated_are_asked_once_and_only_those_that_are_meant():
    cloud = Targets(hv1=DONE, hv2=DONE)
    found, unreachable = target_leftovers.locations(cloud, ["hv2"])
    assert (list(found), unreachable) == (["hv2"], {})
    assert cloud.asked == [("virt.migrate_locations", "hv2")]


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({}, ""),
        ({"deleted": ["/a"]}, "all of it was removed from hv1"),
        (DONE, "on hv1 /b stays: used by db1; run salt-run virt.migrate_recover web1 again"),
        (
            errors.OperationFailed("it broke"),
            "what it may have created on hv1 stays: it broke; "
            "run salt-run virt.migrate_recover web1 again",
        ),
    ],
)
def test_what_became_of_it_is_said_after_a_failure(says, words):
    assert target_leftovers.after_failure(Targets(hv1=says), "hv1", "web1") == words


URI = "qemu+tls://hv2/system"


@pytest.mark.parametrize(
    ("uuid", "target", "told"),
    [
        ("u", URI, ["hv3"]),
        ("u", "qemu+tls://10.9.0.2/system", ["hv2", "hv3"]),
        ("u", "", ["hv2", "hv3"]),
        (None, URI, None),
        ("other", URI, None),
    ],
)
def test_its_host_is_told_which_others_have_the_guest_under_any_name(
    tmp_path, moved, uuid, target, told
):
    """Neither the host nor the target finds one that has gone on to a third host."""
    cloud = Cloud(tmp_path, hv1={}, hv2={"web1": "running"}, hv3={"web2": "running"}, hv4=None)
    cloud.uuids = {"hv1": {}, "hv2": {"web1": "u"}, "hv3": {"web2": "u"}}
    cloud.unfinished = {"hv1": ["web1"]}
    about = {"target": target, "at_work": False, **({"uuid": uuid} if uuid else {})}
    cloud.known = {"hv1": {"web1": about}}
    recover.recover(cloud, "web1", Told())
    [(_, _, asked, _)] = cloud.asked
    assert asked.get("elsewhere") == told


def test_a_person_says_that_it_was_removed(tmp_path, moved):
    cloud = Cloud(tmp_path, hv1={}, hv2={})
    cloud.unfinished = {"hv1": ["web1"]}
    cloud.says = {
        "outcome": "removed",
        "retained": {"/a": "web1 created this file before it was removed"},
    }
    host, found = recover.recover(cloud, "web1", Told(), removed=True)
    assert cloud.asked[0][2] == {"vm_": "web1", "removed": True}
    said = recover.recovery_text("web1", host, found)
    assert said.startswith("web1 was removed, and its migration from hv1 has ended; ")
    assert "/a" in said
