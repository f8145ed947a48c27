"""Pruning and verification of targets, as the master evaluates their answers."""

import pytest

pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.backup.manager import target_upkeep
from saltvirt.backup.model.retention import RetentionVerdict
from saltvirt.backup.model.upkeep_answers import (
    GuestPruneResult,
    PruneResult,
    VerifyReport,
    VerifyResult,
)
from tests.unit.backup.manager.test_backup import TARGETS, Cloud

ONE, TWO, THREE = (f"00000{number}-20261126T160000Z-0123abcd" for number in (1, 2, 3))
STAYS, GOES = (
    RetentionVerdict(THREE, True, "the newest good one"),
    RetentionVerdict(ONE, False, "no rule"),
)
ALSO = RetentionVerdict(TWO, False, "it is not good")
UUID, OTHER = "u-1", "u-2"
HEAD = ["guest", "backup", "retained", "reason"]
RULED = {"vault": {**TARGETS["vault"], "retention": {"daily": 7}}}


class Asked(Cloud):
    """It keeps how it was asked, too."""

    def call(self, host, fun, kwarg=None, **options):
        self.how = options
        return super().call(host, fun, kwarg, **options)


def pruned(tmp_path, *guests, name=None, test=False, targets=RULED, to="vault"):
    """(The one part of the answer, the cloud)."""
    cloud = Asked(tmp_path, targets, backup_prune=PruneResult(guests))
    one = target_upkeep.Prune(cloud, name, to, cloud.report())
    [part] = (one.check() if test else one.run()).parts
    return part, cloud


@pytest.mark.parametrize("test", [True, False])
def test_the_machine_of_a_target_is_told_its_rules_and_whether_it_is_only_asked(tmp_path, test):
    given = {"vault": {**TARGETS["far"], "retention": {"daily": 7}}}
    _, cloud = pruned(tmp_path, name="web1", test=test, targets=given)
    [(host, function, told)] = cloud.asked
    assert (host, function, cloud.how) == ("b2", "virt.backup_prune", {"long": True})
    rules = told.pop("retention")
    assert {rule: many for rule, many in rules.items() if many} == {"daily": 7}
    assert told == {"folder": "/far", "name": "web1", "mounted": True, "test": test}


@pytest.mark.parametrize(
    "backups, test, comment, changes",
    [
        ((STAYS, GOES), False, "removed 1 backup from vault and retained 1", [ONE]),
        ((STAYS, GOES), True, "would remove 1 backup from vault and retain 1", [ONE]),
        ((STAYS, ALSO, GOES), False, "removed 2 backups from vault and retained 1", [TWO, ONE]),
        ((STAYS, ALSO, GOES), True, "would remove 2 backups from vault and retain 1", [TWO, ONE]),
        ((STAYS,), False, "removed 0 backups from vault and retained 1", []),
    ],
)
def test_what_was_removed_is_told_with_what_stays_and_why(
    tmp_path, backups, test, comment, changes
):
    part, cloud = pruned(tmp_path, GuestPruneResult(UUID, "web1", backups), test=test)
    assert (part.subject, part.comment) == ("vault", comment)
    assert part.changes == ({"web1": {"removed": changes}} if changes else {})
    rows = [["web1", one.backup_id, "yes" if one.retained else "no", one.reason] for one in backups]
    assert part.details == {
        "host": "b1", "backups": {"web1": {THREE: STAYS.reason}}, "table": [HEAD, *rows],
    }  # fmt: skip
    assert part.complete
    assert cloud.told == ([] if test else [("done", comment)])


def result(part):
    return part.answer()["vault"]["result"]


@pytest.mark.parametrize(
    "guest, planned",
    [
        (GuestPruneResult(UUID, "web1", (STAYS,)), True),
        (GuestPruneResult(UUID, "web1", (STAYS, GOES)), None),
        (GuestPruneResult(UUID, "web1", error="a backup of it is made"), None),
    ],
)
def test_a_test_says_whether_there_is_something_to_do(tmp_path, guest, planned):
    part, _ = pruned(tmp_path, guest, test=True)
    assert result(part) is planned


@pytest.mark.parametrize("test", [True, False])
def test_a_guest_of_which_nothing_could_be_removed_is_a_failure_of_the_target(tmp_path, test):
    wrong = GuestPruneResult(UUID, "web1", error="a backup of it is made")
    good = GuestPruneResult(OTHER, "web2", (STAYS, GOES))
    part, _ = pruned(tmp_path, wrong, good, test=test)
    assert part.comment.endswith(" 1; web1: a backup of it is made")
    assert part.changes == {"web2": {"removed": [ONE]}}
    assert part.details["trouble"] == {"web1": "a backup of it is made"}
    assert part.details["backups"] == {"web1": {}, "web2": {THREE: STAYS.reason}}
    assert not part.complete and part.answer()["retcode"] == 1


def test_without_rules_it_is_said_that_nothing_can_go(tmp_path):
    part, _ = pruned(tmp_path, GuestPruneResult(UUID, "web1", (STAYS,)), targets=None)
    assert part.comment.endswith(" 1: no retention is configured (virt:backup:retention)")


def test_a_guest_that_the_target_does_not_know_is_named(tmp_path):
    part, _ = pruned(tmp_path, name="web1")
    assert (part.comment, part.complete) == ("vault has no backup of web1", True)
    assert pruned(tmp_path)[0].comment == "removed 0 backups from vault and retained 0"
    known = GuestPruneResult(UUID, "web1", (STAYS,))
    assert "retained 1" in pruned(tmp_path, known, name="web1")[0].comment


@pytest.mark.parametrize(
    "guests, labels",
    [
        ([(UUID, "web1"), (OTHER, "web2")], ["web1", "web2"]),
        ([(UUID, "web1"), (OTHER, "web1")], [f"web1 {UUID}", f"web1 {OTHER}"]),
        ([(UUID, None), (OTHER, "web1")], [UUID, "web1"]),
        ([(UUID, None), (OTHER, None)], [UUID, OTHER]),
    ],
)
def test_guests_of_one_name_and_of_none_are_told_apart(tmp_path, guests, labels):
    """Such as one that was removed and made anew, and one of which no record can be read."""
    part, _ = pruned(tmp_path, *(GuestPruneResult(uuid, name, (STAYS,)) for uuid, name in guests))
    assert list(part.details["backups"]) == labels


def verified(tmp_path, *found, name=None, to="vault", test=False, **how):
    """(The one part of the answer, the cloud)."""
    cloud = Asked(tmp_path, backup_verify=VerifyReport(found))
    one = target_upkeep.Verify(cloud, name, to, cloud.report(), **how)
    [part] = (one.check() if test else one.run()).parts
    return part, cloud


@pytest.mark.parametrize("how", [{}, {"backup": "latest", "days": 30.0, "limit": 0}])
def test_the_machine_of_a_target_is_told_what_to_read_back(tmp_path, how):
    _, cloud = verified(tmp_path, name="web1", to="far", **how)
    told = {
        "folder": "/far", "name": "web1", "mounted": True, "backup": "all", "days": None, **how
    }  # fmt: skip
    assert cloud.asked == [("b2", "virt.backup_verify", told)] and cloud.how["long"] is True


GOOD = VerifyResult(UUID, ONE, "web1")


@pytest.mark.parametrize(
    "found, comment, shown",
    [
        (GOOD, "verified 1 backup at vault: all good", ["web1", ONE, "good"]),
        (VerifyResult(UUID, ONE), "verified 1 backup at vault: all good", [UUID, ONE, "good"]),
        (
            VerifyResult(UUID, ONE, "web1", error="no room"),
            "verified 1 backup at vault: 1 not good", ["web1", ONE, "no room"],
        ),
        (
            VerifyResult(UUID, ONE, "web1", problem="vda: the backup is missing"),
            "verified 1 backup at vault: 1 not good", ["web1", ONE, "vda: the backup is missing"],
        ),
    ],
)  # fmt: skip
def test_what_was_found_of_each_is_told_and_a_bad_one_is_a_failure(tmp_path, found, comment, shown):
    part, cloud = verified(tmp_path, found)
    assert part.comment == comment
    assert part.details == {
        "host": "b1", "backups": [found.to_answer()],
        "table": [["guest", "backup", "result"], shown],
    }  # fmt: skip
    assert part.complete is (shown[-1] == "good")
    assert cloud.told == [("begin", "vault: b1 verifies its backups"), ("done", comment)]


@pytest.mark.parametrize(
    "name, days, comment",
    [
        ("web1", 30, "verified 0 backups at vault: none was due"),
        (None, None, "verified 0 backups at vault: none was due"),
        ("web1", None, "vault has no backup of web1"),
    ],
)
def test_that_nothing_was_read_back_is_said_as_it_is(tmp_path, name, days, comment):
    assert verified(tmp_path, name=name, days=days)[0].comment == comment


def test_what_was_read_back_of_one_guest_is_told_as_of_all(tmp_path):
    part, _ = verified(tmp_path, GOOD, name="web1")
    assert part.comment == "verified 1 backup at vault: all good"


@pytest.mark.parametrize("name, whose", [("web1", "of web1"), (None, "of all guests")])
def test_a_test_says_who_would_read_what(tmp_path, name, whose):
    part, cloud = verified(tmp_path, name=name, test=True, backup="latest")
    assert part.comment == f"b1 would verify the backups {whose} at vault: latest"
    assert part.details == {"host": "b1"} and result(part) is None and cloud.asked == []


def test_a_target_that_does_not_answer_hinders_no_other(tmp_path):
    def says(host, _kwarg):
        return errors.OperationFailed("it is down") if host == "b1" else PruneResult()

    cloud = Cloud(tmp_path, backup_prune=says)
    found = target_upkeep.Prune(cloud, None, None, cloud.report()).run()
    assert {part.subject: part.complete for part in found.parts} == {
        "vault": False, "far": True, "each": True,
    }  # fmt: skip
    assert found.answer()["vault"]["comment"] == "b1: it is down"


def test_of_the_one_target_that_is_meant_a_failure_is_raised(tmp_path):
    cloud = Cloud(tmp_path, backup_prune=errors.OperationFailed("it is down"))
    with pytest.raises(errors.VirtError, match="it is down"):
        target_upkeep.Prune(cloud, None, "vault", cloud.report()).run()
    one = Cloud(tmp_path, {"vault": TARGETS["vault"]}, backup_prune=PruneResult())
    assert [
        part.subject for part in target_upkeep.Prune(one, None, None, one.report()).run().parts
    ] == ["vault"]


@pytest.mark.parametrize(
    "targets, to, why",
    [
        ({}, None, "no backup target is configured"),
        ({}, "vault", "no backup target is configured"),
        (None, "moon", "unknown backup target 'moon'"),
    ],
)
def test_a_target_that_is_not_there_is_named(tmp_path, targets, to, why):
    cloud = Cloud(tmp_path, targets)
    with pytest.raises(errors.VirtError, match=why):
        target_upkeep.select_targets(cloud, to)
