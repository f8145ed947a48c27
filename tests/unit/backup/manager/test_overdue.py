"""``virt.backup_due``: the guests that are backed up, and those that have a recent backup."""

import dataclasses
import time

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backup.manager import overdue
from saltvirt.backup.model.answers import ListedBackup
from saltvirt.operations.core.operation import Result
from saltvirt.operations.journal import location_cache, lock
from saltvirt.placement import facts

NOW_S = 1_763_913_600  # 2025-11-23T16:00:00Z
CONF = {"backup": {"targets": {"vault": {"host": "b1", "folder": "/srv/b"},
                               "attic": {"folder": "/srv/a"}},
                   "target": "vault"}}  # fmt: skip


def backup(when, guest="web1", wrong=None, uuid=None):
    return ListedBackup("000001-x", taken_at=when, guest=guest, uuid=uuid or f"uuid-{guest}",
                        problem=wrong)  # fmt: skip


class Cloud:
    """listed: target to its backups, or the error of asking it. guests: of hv1. silent: hosts."""

    def __init__(self):
        self.opts = {"virt": CONF, "cachedir": "/nonexistent"}
        self.guests, self.listed, self.silent, self.made = ["web1", "web2"], {}, {}, []
        self.error = errors.OperationFailed("the target is full")

    def hosts(self):
        return ["hv1"]

    def ask(self, hosts, fun, kwarg=None, **options):
        assert (hosts, fun, kwarg) == (["hv1"], "virt.backup_sweep", {})
        assert options == {"long": False}
        return []

    def gather(self, _fleet):
        there = tuple(facts.Guest(name, f"uuid-{name}") for name in self.guests)
        new = facts.Guest("new", "uuid-new", creating=True)
        return [facts.Host("hv1", 8, 2**24, guests=(*there, new))], self.silent

    def at(self, _fleet, target, *_asked):
        found = self.listed.get(target.name, [])
        if isinstance(found, Exception):
            raise found
        return found

    def due(self, guests="*", hours=24, to=None, at_once=4, scheduled=False):
        asked = overdue.OverdueRequest.parse(guests, hours, to, at_once, scheduled)
        return overdue.BackUpOverdue(self, asked, None, "ann", lambda: NOW_S)

    def would(self, *words, **more):
        return [one.subject for one in self.due(*words, **more).check().parts if one.changes]


@pytest.fixture
def cloud(monkeypatch):
    found = Cloud()

    class Backup:
        def __init__(self, fleet, name, to, report, requester):
            self.name, self.told = name, (name, to, requester)

        def run(self):
            found.made.append(self.told)
            if self.name == "web1":
                raise found.error
            return Result(self.name, "made", {"backup": "x"})

    class Fleet:
        def __init__(self, opts, like):
            assert like is found

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(overdue.inventory, "gather", found.gather)
    monkeypatch.setattr(overdue.backup, "list_at", found.at)
    monkeypatch.setattr(overdue.backup, "CreateBackup", Backup)
    monkeypatch.setattr(overdue, "Fleet", Fleet)
    return found


def test_a_young_one_is_left_wherever_it_is(cloud):
    cloud.listed = {"vault": [backup("2020-01-01T00:00:00Z")],
                    "attic": [backup("2025-11-23T10:00:00Z")]}  # fmt: skip
    assert cloud.would(hours=7) == ["web2"]
    well = [one for one in cloud.due(hours=7).check().parts if not one.changes]
    assert [one.comment for one in well] == [
        "the last backup of web1 is 000001-x at attic, 6.0 hours old"
    ]
    assert cloud.would(hours=6) == ["web1", "web2"]
    assert cloud.would(hours=7, to="vault") == ["web1", "web2"]
    assert cloud.would(hours=7, to="attic") == ["web2"]


@pytest.mark.parametrize(
    "one",
    [
        backup("2025-11-22T15:59:59Z"),
        backup("2025-11-23T15:00:00Z", wrong="vda: the backup is missing"),
        backup("2099-01-01T00:00:00Z"),
        backup(None),
        backup("soon"),
        backup("2025-11-23T15:00:00Z", uuid="of one that was there before"),
        backup("2025-11-23T15:00:00Z", guest="web3"),
    ],
)
def test_what_is_old_or_not_good_or_anothers_does_not_count(cloud, one):
    cloud.listed = {"vault": [one]}
    assert cloud.would() == ["web1", "web2"]


def test_one_that_fails_hinders_no_other_and_is_no_success(cloud):
    cloud.silent = {"hv2": "it is silent"}
    web1, web2, hv2 = cloud.due(to="vault", at_once=1).run().parts
    assert cloud.made == [("web1", "vault", "ann"), ("web2", "vault", "ann")]
    assert (web1.comment, web1.complete) == ("the target is full", False)
    assert (web2.changes, web2.complete) == ({"backup": "x"}, True)
    assert hv2.subject == "hv2" and "it is silent" in hv2.comment and not hv2.complete


def test_the_guests_that_a_silent_host_had_are_named(cloud, tmp_path):
    cloud.opts["cachedir"] = str(tmp_path)
    location_cache.store_host(cloud.opts, "hv2", {"web1": "running", "web9": "off", "db": "off"})
    cloud.silent = {"hv2": "it is silent"}
    hv2 = cloud.due("web*").check().parts[-1]
    assert hv2.comment.startswith("cannot list the guests of hv2: it is silent; last seen there (2")
    assert hv2.comment.endswith("): web9")


def test_by_patterns_of_names(cloud):
    cloud.guests = ["db1", "web1", "web2"]
    assert cloud.would("web*") == ["web1", "web2"]
    assert cloud.would(["db1", "*2"]) == ["db1", "web2"]
    with pytest.raises(errors.NotFound, match=r"no guest matches x\*, y"):
        cloud.due(["x*", "y"]).run()


def test_the_target_where_it_would_be_made_has_to_answer(cloud):
    cloud.listed = {"attic": errors.ConnectionFailed("attic is silent")}
    assert cloud.would() == ["web1", "web2"]
    cloud.listed = {"vault": errors.ConnectionFailed("vault is silent")}
    with pytest.raises(errors.ConnectionFailed, match="vault is silent"):
        cloud.due().run()
    assert cloud.made == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"guests": 7}, "guests must be a pattern"),
        ({"guests": [None]}, "guests must be a pattern"),
        ({"hours": "soon"}, "hours must be a number"),
        ({"to": 7}, "to must be the name"),
        ({"at_once": 0}, "at_once 0 must be at least 1"),
    ],
)
def test_what_is_wrong_is_said(cloud, wrong, words):
    with pytest.raises(errors.InvalidInput, match=words):
        cloud.due(**wrong)


def test_all_that_is_asked_for_is_read(cloud):
    for guests in (["web1", 7], ["web1", None], 7):
        with pytest.raises(errors.InvalidInput, match="a pattern of names or a list of them"):
            cloud.due(guests)
    assert cloud.due(["web1", "web2"], at_once=2).request.at_once == 2
    assert cloud.due(at_once=10**6).request.at_once == overdue._MAX_AT_ONCE


def test_where_all_are_young_or_a_host_is_silent_there_is_something_to_say(cloud):
    cloud.guests, cloud.listed = ["web1"], {"vault": [backup("2025-11-23T15:00:00Z")]}
    [well] = cloud.due().check().parts
    assert well.nothing and well.comment.endswith("1.0 hours old")
    cloud.silent = {"hv2": "it is silent"}
    [silent] = cloud.due("db*").check().parts
    assert silent.subject == "hv2"
    cloud.silent = {}
    with pytest.raises(errors.NotFound, match=r"no guest matches db\*"):
        cloud.due("db*").check()


@pytest.fixture
def said(cloud, monkeypatch):
    """Guest to what it says of its backups."""
    found = {"web1": "hours=1.0 to=attic", "web2": "no", "web3": "yes", "web4": "hours=what"}

    def gather(_fleet):
        there = tuple(facts.Guest(one, f"uuid-{one}", backup=text) for one, text in found.items())
        return [facts.Host("hv1", 8, 2**24, guests=there)], {}

    monkeypatch.setattr(overdue.inventory, "gather", gather)
    return found


def test_a_guest_that_says_nothing_of_its_target_goes_to_the_one_that_is_asked_for(cloud, said):
    cloud.due(to="vault", at_once=1).run()
    assert cloud.made == [("web1", "attic", "ann"), *((f"web{n}", "vault", "ann") for n in (3, 4))]


def test_where_only_who_says_so_is_backed_up_the_others_target_may_be_silent(cloud, said):
    cloud.listed = {"vault": errors.ConnectionFailed("vault is silent")}
    del said["web3"]
    [web1] = cloud.due(scheduled=True).check().parts
    assert (web1.subject, web1.complete) == ("web1", True)


def test_a_schedule_that_backs_up_nobody_is_an_error(cloud, said):
    del said["web1"], said["web3"]
    # web2 asks for no backup: that is what somebody has decided
    assert cloud.due(scheduled=True).check().parts == ()
    del said["web2"]
    for asked in ({"scheduled": True}, {"scheduled": True, "guests": "web*"}):
        with pytest.raises(errors.NotFound, match="has a backup schedule"):
            cloud.due(**asked).run()
    said.clear()
    with pytest.raises(errors.NotFound, match=r"no guest matches \*"):
        cloud.due(scheduled=True).run()


def test_where_nobody_can_be_backed_up_it_is_said_why_and_not_that_there_is_nobody(cloud, said):
    said["web1"] = "to=nowhere"
    [failed] = cloud.due("web1").check().parts
    assert (failed.subject, failed.complete) == ("web1", False)
    assert "unknown backup target 'nowhere'" in failed.comment


def test_a_guest_that_says_it_itself(cloud, said):
    """Its own hours and target hold before those that are asked for; one that says no is left."""
    young = "2025-11-23T14:00:00Z"
    cloud.listed = {"vault": [backup(young), backup(young, "web3"), backup(young, "web4")]}
    # web1 has one at vault; it wants it at attic, and younger
    assert cloud.would() == ["web1"]
    cloud.listed["attic"] = [backup(young)]
    assert cloud.would() == ["web1"]
    cloud.listed["attic"] = [backup("2025-11-23T15:30:00Z")]
    assert cloud.would() == []
    cloud.listed = {}
    assert cloud.would() == ["web1", "web3", "web4"]
    found = cloud.due(scheduled=True)
    assert [one.subject for one in found.check().parts] == ["web1", "web3"]
    found.run()
    assert sorted(cloud.made) == [("web1", "attic", "ann"), ("web3", None, "ann")]
    said["web1"] = "hours=1.0 to=nowhere"
    done = found.run()
    [failed] = [one for one in done.parts if not one.complete and one.subject == "web1"]
    assert "unknown backup target 'nowhere'" in failed.comment
    cloud.listed = {"attic": errors.ConnectionFailed("attic is silent")}
    said["web1"] = "to=attic"
    [failed] = [one for one in found.check().parts if not one.complete]
    assert (failed.subject, failed.comment) == ("web1", "attic is silent")


def test_a_target_whose_clock_is_ahead_has_backups_all_the_same(cloud):
    """It tells how old each is by the clock that wrote its time."""
    ahead = dataclasses.replace(backup("2025-12-01T00:00:00Z"), age_s=7200)
    cloud.guests, cloud.listed = ["web1"], {"vault": [ahead]}
    [well] = cloud.due().check().parts
    assert well.nothing and "2.0 hours old" in well.comment
    cloud.listed = {"vault": [dataclasses.replace(ahead, age_s=-9)]}
    [due_] = cloud.due().check().parts
    assert "is in the future: check the clock" in due_.comment


def test_a_newest_backup_that_is_not_good_is_told_of(cloud):
    bad = ListedBackup("000002-x", guest=None, uuid="uuid-web1", problem="record.json is no JSON")
    cloud.guests, cloud.listed = ["web1"], {"vault": [backup("2025-11-23T15:00:00Z"), bad]}
    [well] = cloud.due().check().parts
    assert well.comment.endswith(
        "; the newest backup at vault, 000002-x, is not good: record.json is no JSON"
    )


def test_no_host_waits_for_another():
    turns = overdue._HostSlots({"a1": "hv1", "a2": "hv1", "b1": "hv2"}, 1)
    assert [turns.take(), turns.take()] == ["a1", "b1"], "a2 would wait for a1"
    turns.release("b1")
    turns.release("a1")
    assert (turns.take(), turns.take()) == ("a2", None)


def test_one_that_an_earlier_run_still_backs_up_is_left(cloud, tmp_path):
    """A large guest takes hours: the others are backed up meanwhile."""
    cloud.opts["cachedir"] = str(tmp_path)
    with lock.guest(cloud.opts, "web1", "virt.backup"):
        web2, web1 = cloud.due().run().parts
    assert cloud.made == [("web2", None, "ann")] and web2.subject == "web2"
    assert web1.complete and "is in progress" in web1.comment


def test_after_an_interrupt_no_further_backup_begins(cloud, monkeypatch):
    cloud.guests = [f"web{number}" for number in range(1, 60)]

    def back_up(_self, name, _target):
        cloud.made.append(name)
        if name == "web1":
            raise KeyboardInterrupt  # in the main thread it comes from the wait for this backup
        time.sleep(0.02)

    monkeypatch.setattr(overdue.BackUpOverdue, "_back_up", back_up)
    with pytest.raises(KeyboardInterrupt):
        cloud.due(at_once=2).run()
    assert len(cloud.made) < 30


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("error", [errors.Refused("at work"), OSError(28, "the disk is full")])
def test_all_are_backed_up_whatever_becomes_of_one(cloud, at_once, error):
    """Also of what is none of our errors, as where the master's disk is full."""
    cloud.error = error
    cloud.guests = [f"web{number}" for number in range(1, 8)]
    found = cloud.due(at_once=at_once).run().parts
    assert sorted(name for name, *_ in cloud.made) == cloud.guests
    assert [one.subject for one in found] == cloud.guests
    assert [one.complete for one in found] == [False] + [True] * 6
    assert "at work" in found[0].comment or "the disk is full" in found[0].comment
