"""The record of an evacuation follows what was observed, not what was answered; an operator can end
an evacuation."""

import threading

import pytest

pytest.importorskip("salt")

from saltvirt.answers.guests import MigrationFacts
from saltvirt.errors import ConnectionFailed, InvalidInput, MigrationFailed, OperationFailed
from saltvirt.operations.journal import evacuated, lock
from saltvirt.operations.move import evacuate, evacuation_record, migrate
from saltvirt.operations.move.evacuate import Evacuate
from tests.fakes.fleet import Silent, Told
from tests.unit.operations.move.test_evacuate import (
    PLAIN,
    Cloud,
    bring_back,
    drain,
    outcome_of,
)

KEYS = []


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    """What the store of keys is told."""

    class Store:
        def __init__(self, _opts):
            pass

        def rebind(self, *about):
            KEYS.append(about)

    KEYS.clear()
    for module in (evacuation_record, evacuate):
        monkeypatch.setattr(module, "KeyStore", Store)


def lost(cloud, guest, target):
    """It moves, and nobody hears of it."""
    cloud.move(guest, target)
    raise ConnectionFailed("hv1: no answer in 306 s")


def away_of(cloud):
    return set(evacuated.load(cloud.opts, "hv1").values())


def test_a_guest_whose_answer_was_lost_has_moved_and_comes_back(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "b": "hv1"})

    def move(guest, target):
        return lost(cloud, guest, "hv3") if guest == "b" else cloud.move(guest, target)

    outcome = drain(cloud, move)
    assert (outcome.moved["b"], outcome.unmoved) == ("hv3", {})
    assert KEYS == [("b", "hv1", "hv3")]
    assert (away_of(cloud), cloud.mark["guests"]) == ({"a", "b"}, ["a", "b"])
    assert outcome_of(bring_back(cloud, cloud.move).run()).moved == {"a": "hv1", "b": "hv1"}
    assert (cloud.mark, away_of(cloud)) == (None, set())


def test_a_guest_whose_migration_goes_on_is_away_until_the_opposite_is_observed(tmp_path):
    """Salt lost the answer, libvirt goes on: the guest is on its old host still."""
    cloud = Cloud(tmp_path, {"a": "hv1"})
    cloud.unfinished["a"] = "hv1"

    def move(guest, target):
        raise ConnectionFailed("hv1: no answer in 306 s")

    assert drain(cloud, move).unmoved == {"a": "hv1: no answer in 306 s"}
    assert away_of(cloud) == {"a"}
    outcome = outcome_of(bring_back(cloud, cloud.move).run())
    assert outcome.unmoved == {
        "a": "one of its migrations has not ended: salt-run virt.migrate_recover a"
    }
    cloud.guests["a"], cloud.unfinished = "hv2", {}
    assert outcome_of(bring_back(cloud, cloud.move).run()).moved == {"a": "hv1"}


def test_a_guest_that_was_purged_meanwhile_is_not_left(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "b": "hv1"})

    def move(guest, target):
        if guest == "b":
            del cloud.guests["b"]
            raise OperationFailed("no guest 'b' on any hypervisor")
        return cloud.move(guest, target)

    outcome = drain(cloud, move)
    assert (outcome.unmoved, away_of(cloud)) == ({}, {"a"})


def test_a_guest_that_may_be_on_a_silent_host_stays_in_the_record(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1"})

    def move(guest, target):
        cloud.silent = ["hv2"]
        return lost(cloud, guest, "hv2")

    assert drain(cloud, move).unmoved == {"a": "hv1: no answer in 306 s"}
    assert away_of(cloud) == {"a"}


def test_a_guest_that_its_silent_host_may_still_run_is_not_moved(tmp_path):
    """A migration shows the guest on its target, too, and only the old host knows of it."""
    cloud = Cloud(tmp_path, {"a": "hv1"})

    def move(guest, target):
        cloud.silent = ["hv1"]
        return lost(cloud, guest, "hv2")

    outcome = drain(cloud, move)
    assert (outcome.moved, outcome.unmoved["a"]) == ({}, "hv1: no answer in 306 s")
    assert (KEYS, away_of(cloud)) == ([], {"a"})


def test_a_guest_whose_host_is_silent_on_the_way_back_is_not_back(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1"})
    drain(cloud)

    def move(guest, target):
        cloud.silent = [cloud.guests[guest]]
        cloud.guests[guest] = target
        raise ConnectionFailed("no answer")

    outcome = outcome_of(bring_back(cloud, move).run())
    assert (outcome.moved, outcome.unmoved) == ({}, {"a": "no answer"})
    assert (KEYS, away_of(cloud)) == ([], {"a"})


@pytest.mark.parametrize("old", ["purged", "renamed"])
def test_a_guest_of_a_name_that_left_before_is_not_taken_for_that_one(tmp_path, old):
    """It stayed, and the evacuation said that all had gone."""
    cloud = Cloud(tmp_path, {"a": "hv1"})
    drain(cloud)
    host = cloud.guests.pop("a")
    if old == "renamed":
        cloud.guests["b"], cloud.uuids["b"] = host, "uuid-a"
    cloud.guests["a"], cloud.uuids["a"] = "hv1", "uuid-of-another"

    def move(guest, target):
        raise OperationFailed("it is on a CD")

    outcome = drain(cloud, move)
    assert (outcome.moved, outcome.unmoved) == ({}, {"a": "it is on a CD"})


def test_an_answer_that_is_lost_on_the_way_back_is_no_guest_that_stays_away(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1"})
    drain(cloud)

    def move(guest, target):
        cloud.guests[guest] = target
        raise ConnectionFailed("no answer")

    outcome = outcome_of(bring_back(cloud, move).run())
    assert (outcome.moved, outcome.unmoved) == ({"a": "hv1"}, {})
    assert (KEYS[-1], cloud.mark) == (("a", "hv3", "hv1"), None)


def test_a_guest_that_was_renamed_while_it_was_away_comes_back(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "b": "hv1"})
    drain(cloud)
    cloud.guests["new"], cloud.uuids["new"] = cloud.guests.pop("b"), "uuid-b"
    move = lambda guest, target: cloud.guests.update({guest: target}) or target  # noqa: E731
    outcome = outcome_of(bring_back(cloud, move).run())
    assert (outcome.moved, cloud.mark) == ({"a": "hv1", "new": "hv1"}, None)


def test_another_guest_of_the_same_name_is_not_brought_to_the_host(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1"})
    drain(cloud)
    cloud.guests["a"], cloud.uuids["a"] = "hv3", "uuid-of-another"
    outcome = outcome_of(bring_back(cloud, cloud.move).run())
    assert (outcome.moved, cloud.guests, cloud.mark) == ({}, {"a": "hv3"}, None)


def test_what_an_earlier_version_recorded_comes_back(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv2"}, {"reason": "x", "guests": ["a"]})
    evacuated.store(cloud.opts, "hv1", {"a": "a"})
    assert outcome_of(bring_back(cloud, cloud.move).run()).moved == {"a": "hv1"}


def test_an_error_that_is_none_of_ours_is_the_reason_of_one_guest(tmp_path, caplog):
    cloud = Cloud(tmp_path, {"a": "hv1", "b": "hv1", "c": "hv1", "d": "hv1"})

    def move(guest, target):
        if guest == "b":  # before it moves
            raise OSError(28, "No space left on device", "/var/cache/b")
        cloud.move(guest, target)
        if guest == "c":  # once it has moved
            raise OSError(28, "No space left on device", "/var/cache/c")
        return target

    outcome = drain(cloud, move)
    assert outcome.moved.keys() == {"a", "c", "d"}
    assert outcome.unmoved == {"b": "OSError: [Errno 28] No space left on device: '/var/cache/b'"}
    assert away_of(cloud) == {"a", "c", "d"}


def test_a_migration_that_only_the_drained_host_can_end_is_named(tmp_path):
    """Its guest lives on the target; the host is switched off next."""
    cloud = Cloud(tmp_path, {"a": "hv1", "x": "hv2"})
    cloud.unfinished["x"] = "hv1"
    outcome = drain(cloud)
    assert outcome.moved.keys() == {"a"}
    why = "its migration from hv1 has not ended: salt-run virt.migrate_recover x"
    assert (outcome.unmoved, away_of(cloud)) == ({"x": why}, {"a"})


# -- two at once -----------------------------------------------------------------------------------


def test_a_second_evacuation_is_refused_with_who_is_at_work(tmp_path):
    cloud, words = Cloud(tmp_path, {"a": "hv1"}), []
    again = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent())

    def move(guest, target):
        with pytest.raises(OperationFailed) as refused:
            again.run()
        words.append(refused.value.text)
        words.extend(again.check().reasons)
        return cloud.move(guest, target)

    drain(cloud, move)
    assert words[0] == words[1]
    assert words[0].startswith("hv1: virt.evacuate hv1, process ")
    assert words[0].endswith("wait for it, or end it: salt-run virt.restore hv1")
    assert away_of(cloud) == {"a"}
    assert again.check().reasons == ()


def test_restore_ends_an_evacuation_and_brings_back_what_it_moved(tmp_path):
    cloud, told, done = Cloud(tmp_path, {"a": "hv1", "b": "hv1", "c": "hv1"}), Told(), {}
    tried = []

    def back():
        one = bring_back(cloud, cloud.move)
        one.report = told
        done["restored"] = outcome_of(one.run())

    second = threading.Thread(target=back)

    def move(guest, target):
        if lock.is_stopped(cloud.opts, "hv1"):  # as operations.migrate asks
            raise OperationFailed("the evacuation of hv1 was ended")
        tried.append(guest)
        if guest == "a":
            check = bring_back(cloud, cloud.move).check()
            assert ", would be stopped first" in check.comment
            cloud.move(guest, target)
            second.start()
            while not lock.is_stopped(cloud.opts, "hv1"):
                second.join(0.01)
        return target

    ended = Evacuate(cloud, "hv1", PLAIN, move, Silent()).run()
    second.join()
    assert tried == ["a"]
    assert not ended.complete
    assert ended.comment.startswith("the evacuation of hv1 was ended: 1 moved, 2 left: ")
    assert done["restored"].moved == {"a": "hv1"}
    assert (cloud.mark, away_of(cloud)) == (None, set())
    assert set(cloud.guests.values()) == {"hv1"}
    assert told.lines[0].startswith("virt.evacuate hv1, process ")
    assert "is stopped: no further guest leaves hv1" in told.lines[0]


def test_restore_ends_an_evacuation_of_which_nothing_has_moved_yet(tmp_path):
    """The evacuation takes the mark away, for which restore came: that is its success."""
    cloud, done = Cloud(tmp_path, {"a": "hv1"}), []
    second = threading.Thread(target=lambda: done.append(bring_back(cloud, cloud.move).run()))

    def move(guest, target):
        second.start()
        while not lock.is_stopped(cloud.opts, "hv1"):
            second.join(0.01)
        raise OperationFailed("the evacuation of hv1 was ended")

    Evacuate(cloud, "hv1", PLAIN, move, Silent()).run()
    second.join()
    assert [one.comment for one in done] == ["hv1 accepts guests again: 0 moved"]
    assert (cloud.mark, cloud.guests, away_of(cloud)) == (None, {"a": "hv1"}, set())
    with pytest.raises(InvalidInput, match="hv1 is not in maintenance"):
        bring_back(cloud, cloud.move).run()


def test_a_second_restore_is_refused(tmp_path):
    cloud, words = Cloud(tmp_path, {"a": "hv1"}), []
    drain(cloud)

    def move(guest, target):
        again = bring_back(cloud, cloud.move)
        with pytest.raises(OperationFailed, match=r"virt.restore hv1, process .*is under way"):
            again.run()
        words.extend(again.check().reasons)
        return cloud.move(guest, target)

    assert outcome_of(bring_back(cloud, move).run()).moved == {"a": "hv1"}
    assert "virt.restore hv1, process" in words[0]


@pytest.mark.parametrize("other", [None, {"reason": "a fan is broken", "guests": []}])
def test_a_mark_that_somebody_changes_ends_the_evacuation(tmp_path, other):
    cloud = Cloud(tmp_path, {"a": "hv1"})

    def move(guest, target):
        cloud.move(guest, target)
        cloud.mark = other
        cloud.guests["late"] = "hv1"
        return target

    ended = Evacuate(cloud, "hv1", PLAIN, move, Silent()).run()
    assert ended.comment.startswith("the evacuation of hv1 was ended: 1 moved, 1 left: late: ")
    assert cloud.guests == {"a": "hv3", "late": "hv1"}
    assert cloud.mark == {"reason": (other or {}).get("reason"), "guests": ["a"]}
    assert outcome_of(bring_back(cloud, cloud.move).run()).moved == {"a": "hv1"}


def test_an_end_while_the_first_plan_is_made_is_an_end(tmp_path, monkeypatch):
    """All hosts are asked for it, which takes a while; no mark is written over that."""
    cloud, ask = Cloud(tmp_path, {"a": "hv1"}), Cloud.ask

    def asked(self, hosts, fun, *more, **options):
        found = [*ask(self, hosts, fun, *more, **options)]
        if fun == "virt.inventory":  # salt hv1 virt.maintenance off=True
            self.mark = None
        return found

    monkeypatch.setattr(Cloud, "ask", asked)
    ended = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).run()
    assert ended.comment.startswith("the evacuation of hv1 was ended: 0 moved, 1 left: a: ")
    assert (cloud.mark, cloud.guests) == (None, {"a": "hv1"})


def test_what_cannot_be_recorded_at_the_end_is_said_beside_what_was_moved(tmp_path, monkeypatch):
    cloud = Cloud(tmp_path, {"a": "hv1"})

    def move(guest, target):
        monkeypatch.setattr(evacuated, "store", full)
        return cloud.move(guest, target)

    def full(*_about):
        raise OSError(28, "No space left on device")

    outcome = drain(cloud, move)
    assert outcome.moved == {"a": cloud.guests["a"]}
    assert outcome.unmoved["hv1"].startswith("the moves were not recorded: [Errno 28]")


def test_one_migration_of_many_is_not_begun_once_the_evacuation_was_ended(tmp_path):
    """The names of the others were planned before: each asks again, right before it would move."""
    opts = {"cachedir": str(tmp_path)}
    plan = migrate.MovePlan("hv1", migrate.Targets(["hv2"], {}), evacuated="disks")
    one = migrate.Migrate(None, PLAIN, "a", "hv2", Silent(), plan=plan)
    one.fleet = type("Fleet", (), {"opts": opts})
    for reason, ended in (("disks", False), (None, True), ("fans", True)):
        facts = MigrationFacts(guests={}, unfinished=(), maintenance=reason)
        seen = migrate.MigrationLocations(hosts={"hv1": facts})
        if ended:
            with pytest.raises(OperationFailed, match="the evacuation of hv1 was ended"):
                one._refuse_stopped(seen)
        else:
            one._refuse_stopped(seen)
    one.plan = None
    one._refuse_stopped(seen)


# -- the plan --------------------------------------------------------------------------------------


def test_who_can_go_nowhere_is_said_beforehand(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1", "b": "hv1"})
    cloud.pinned["b"] = ["it has 2 snapshots", "a CD is in its drive"]
    found = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).check()
    assert found.comment == "hv1: 1 would move, 1 would stay"
    assert found.details["left"] == {"b": "it has 2 snapshots; a CD is in its drive"}
    assert found.answer()["retcode"] == 1
    cloud.pinned.clear()
    found = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).check()
    assert (found.comment, found.complete) == ("hv1: 2 would move, 0 would stay", True)


def test_a_reason_is_a_short_text(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1"})
    for reason in ("x" * 201, " ", ["disks"]):
        evacuation = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent(), reason)
        assert evacuation.check().comment.startswith("reason ")
        with pytest.raises(InvalidInput, match="reason "):
            evacuation.run()
    assert cloud.marks == []


def test_a_guest_of_which_its_host_cannot_tell_would_stay(tmp_path):
    cloud = Cloud(tmp_path, {"a": "hv1"})
    cloud.each = lambda *_: [Failed()]
    found = Evacuate(cloud, "hv1", PLAIN, cloud.move, Silent()).check()
    assert found.details["left"] == {"a": "it is not known"}


class Failed:
    def parse(self, _function, _read):
        return self

    def get(self):
        raise MigrationFailed("it is not known")


# -- two hosts whose maintenance overlaps ----------------------------------------------------------


class Drained(Cloud):
    """Each host has a mark of its own."""

    def __init__(self, tmp_path, guests):
        super().__init__(tmp_path, guests)
        self.by_host = {}

    def call(self, host, fun, kwarg=None, **_options):
        self.mark = self.by_host.get(host)
        self.by_host[host] = super().call("hv1", fun, kwarg)
        return self.by_host[host]

    def _of_its_mark(self, host, said):
        return {**said, "maintenance": (self.by_host.get(host) or {}).get("reason")}

    def _inventory(self, host):
        return self._of_its_mark(host, super()._inventory(host))

    def _migrate_locations(self, host):
        return self._of_its_mark(host, super()._migrate_locations(host))

    def drain(self, host, target):
        def move(guest, _target):
            self.guests[guest] = target
            return target

        assert Evacuate(self, host, PLAIN, move, Silent()).run().complete

    def back(self, host):
        def move(guest, target):
            self.guests[guest] = target
            return target

        done = evacuate.RestoreHost(self, host, move, Silent()).run()
        assert done.complete, done.comment
        return done.changes["moved"]


def overlapping(tmp_path):
    """a is of hv1, b of hv2; both went to hv3."""
    cloud = Drained(tmp_path, {"a": "hv1", "b": "hv2"})
    cloud.drain("hv1", "hv2")
    cloud.drain("hv2", "hv3")
    assert set(cloud.guests.values()) == {"hv3"}
    return cloud


def test_a_guest_that_is_at_home_again_is_not_taken_to_where_it_was_meanwhile(tmp_path):
    cloud = overlapping(tmp_path)
    assert cloud.back("hv1") == {"a": "hv1"}
    assert cloud.back("hv2") == {"b": "hv2"}
    assert (cloud.guests, cloud.by_host) == ({"a": "hv1", "b": "hv2"}, {"hv1": None, "hv2": None})
    assert evacuated.homes(cloud.opts, "hv2") == {}


def test_the_host_where_it_was_meanwhile_may_be_restored_first(tmp_path):
    cloud = overlapping(tmp_path)
    assert cloud.back("hv2") == {"a": "hv2", "b": "hv2"}
    assert cloud.back("hv1") == {"a": "hv1"}
    assert cloud.guests == {"a": "hv1", "b": "hv2"}


def test_what_is_recorded_of_a_host_that_takes_guests_is_no_home(tmp_path):
    """Its mark was taken away by hand, and the guests stayed where they were."""
    cloud = Drained(tmp_path, {"a": "hv1"})
    cloud.drain("hv1", "hv2")
    cloud.by_host["hv1"] = None  # salt hv1 virt.maintenance off=True
    cloud.drain("hv2", "hv1")
    assert cloud.back("hv2") == {"a": "hv2"}
