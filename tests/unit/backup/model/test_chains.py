"""Disks that are read as an increment, and the reasons for which others are read in full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltvirt.backup.model import chains
from saltvirt.backup.model.answers import GuestInspection, InspectedDisk
from saltvirt.backup.model.catalog import StoredBackup
from saltvirt.backup.model.chains import DISABLED, GOOD, INCONSISTENT
from saltvirt.backup.model.verification import Verification
from tests.unit.backup.model import made

WHEN = "2026-11-23T16:00:00Z"
LAST = chains.checkpoint(made.ident(2))
TWO = made.chain([1, 2])


def seen(*disks, host="hv1", checkpoints=(LAST,), name=""):
    """(a guest, its host)."""
    return GuestInspection(made.UUID, True, disks or (disk(),), checkpoints, name=name), host


def disk(target="vda", **other):
    given = {"size_bytes": made.GIB, "source": made.SOURCE, "bitmaps": {LAST: GOOD}}
    return InspectedDisk(target, **{**given, **other})


def plan(guest, *backups, **how):
    [found] = chains.plan(*guest, made.stock(*(backups or TWO)), **how)
    return found


def test_the_next_is_an_increment_on_the_last():
    found = plan(seen())
    assert (found.parent, found.since, found.reason) == (made.ident(2), LAST, None)


def test_also_on_another_host_where_the_bitmap_came_along():
    moved = disk(source="file /srv/other/web1_system.qcow2")
    assert plan(seen(moved, host="hv2")).parent == made.ident(2)
    assert plan(seen(disk(), host="hv2")).parent == made.ident(2)


def test_also_of_a_guest_that_was_renamed_with_its_files():
    renamed = disk(source="file /srv/web9_system.qcow2")
    assert plan(seen(renamed, name="web9")).parent == made.ident(2)
    other = disk(source="file /srv/web9_data.qcow2")
    for guest in (
        seen(other, name="web9"),
        seen(renamed, name="web1"),
        seen(renamed, disk("vdb", source=renamed.source), name="web9"),
    ):
        assert "the disk was replaced" in chains.plan(*guest, made.stock(*TWO))[0].reason


def broken(number, why="the piece at 0 is another"):
    mark = Verification(WHEN, ("vda",), {"vda": why})
    return made.backup(number, [made.disk(parent=number - 1 or None, of=number)], mark)


CASES = {
    "asked": (seen(), TWO, {"full": True}, "a full backup was requested"),
    "first": (seen(), [], {}, "the first backup of the guest at this target"),
    "unreadable": (
        seen(), [*TWO, StoredBackup(made.ident(3), record_error="it is no JSON")], {},
        "the last backup cannot be read: it is no JSON",
    ),
    "without a record": (
        seen(), [*TWO, StoredBackup(made.ident(3))], {},
        "the last backup cannot be read: the record is missing",
    ),
    "moved on its host": (
        seen(disk(source="file /srv/other/web1_system.qcow2")), TWO, {},
        f"the disk was replaced: {made.SOURCE} before, file /srv/other/web1_system.qcow2 now",
    ),
    "encrypted from now on": (
        seen(), TWO, {"key": "ours.0123456789abcdef"},
        "the last backup of the disk is not encrypted, "
        "this one is encrypted with the key ours.0123456789abcdef",
    ),
    "encrypted until now": (
        seen(), [made.backup(2, [made.disk(of=2, key="ours.0123456789abcdef")])], {},
        "the last backup of the disk is encrypted with the key ours.0123456789abcdef, "
        "this one is not encrypted",
    ),
    "added": (
        seen(disk("vdb")), TWO, {}, f"the last backup, {made.ident(2)}, does not contain the disk",
    ),
    "resized": (
        seen(disk(size_bytes=2 * made.GIB)), TWO, {},
        "the disk was resized from 1073741824 to 2147483648 bytes",
    ),
    "replaced": (
        seen(disk(source="file /srv/new.qcow2")), TWO, {},
        f"the disk was replaced: {made.SOURCE} before, file /srv/new.qcow2 now",
    ),
    "replaced on the way": (
        seen(disk(source="file /srv/web1_data.qcow2"), host="hv2"), TWO, {},
        f"the disk was replaced: {made.SOURCE} before, file /srv/web1_data.qcow2 now",
    ),
    "raw": (
        seen(disk(format="raw")), TWO, {},
        "a disk of format raw cannot store a bitmap",
    ),
    "no checkpoint": (
        seen(), [made.backup(2, [made.disk(checkpoint=None)])], {},
        "the last backup of the disk has no checkpoint",
    ),
    "checkpoint gone": (
        seen(checkpoints=()), TWO, {}, f"libvirt on hv1 does not know the checkpoint {LAST}",
    ),
    "bitmap gone": (
        seen(disk(bitmaps={})), TWO, {}, f"the disk has no bitmap {LAST}",
    ),
    "bitmap lost by a migration": (
        seen(disk(bitmaps={}), host="hv2"), TWO, {},
        f"the disk has no bitmap {LAST} since the guest moved from hv1 to hv2",
    ),
    "bitmap inconsistent": (
        seen(disk(bitmaps={LAST: INCONSISTENT})), TWO, {},
        f"the bitmap {LAST} of the disk is inconsistent",
    ),
    "bitmap disabled": (
        seen(disk(bitmaps={LAST: DISABLED})), TWO, {},
        f"the bitmap {LAST} of the disk is disabled",
    ),
    "bitmap of the one before alone": (
        seen(disk(bitmaps={chains.checkpoint(made.ident(1)): GOOD})), TWO, {},
        f"the disk has no bitmap {LAST}",
    ),
    "parent broken": (
        seen(), [TWO[0], broken(2)], {},
        "the last backup of the disk is not good: the piece at 0 is another",
    ),
    "grandparent broken": (
        seen(), [broken(1), TWO[1]], {},
        f"the last backup of the disk is not good: {made.ident(1)}, on which it depends: "
        "the piece at 0 is another",
    ),
    "grandparent gone": (
        seen(), [TWO[1]], {},
        f"the last backup of the disk is not good: {made.ident(1)}, on which it depends: "
        "the backup is missing",
    ),
    "parent of another size": (
        seen(), [made.backup(1, [made.disk(size_bytes=7)]), TWO[1]], {},
        f"the last backup of the disk is not good: {made.ident(1)}, on which it depends, "
        "has another size",
    ),
    "the lowest is named": (
        seen(disk(bitmaps={chains.checkpoint(made.ident(3)): GOOD}),
             checkpoints=[chains.checkpoint(made.ident(3))]),
        [broken(1), *made.chain([2, 3], first=1)], {},
        f"the last backup of the disk is not good: {made.ident(1)}, on which it depends: "
        "the piece at 0 is another",
    ),
    "file gone": (
        seen(), [TWO[0], made.backup(2, [made.disk(parent=1, of=2)], without=["vda.qcow2"])], {},
        "the last backup of the disk is not good: vda.qcow2 is missing",
    ),
    "long": (seen(), TWO, {"chain": 2}, "the chain has 2 backups, the maximum is 2"),
    "no chains": (
        seen(), [made.backup(2)], {"chain": 1}, "increments are disabled (virt:backup:chain)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_reason_for_a_whole_one(case):
    guest, backups, how, reason = CASES[case]
    [found] = chains.plan(*guest, made.stock(*backups), **how)
    assert (found.reason, found.parent, found.since) == (reason, None, None)


def test_the_affected_disk_alone_is_whole():
    both = [made.disk(of=2), made.disk("vdb", of=2, source="file /b.qcow2")]
    guest = seen(disk(), disk("vdb", source="file /b.qcow2", bitmaps={}), disk("vdc", source="c"))
    found = chains.plan(*guest, made.stock(made.backup(2, both)))
    assert [one.parent for one in found] == [made.ident(2), None, None]
    assert [bool(one.reason) for one in found] == [False, True, True]


def test_disks_that_changed_places_are_no_increments():
    """All of a guest's disks have bitmaps of the same names."""
    sources = ["file /srv/a/x.qcow2", "file /srv/b/x.qcow2"]
    both = [made.disk("vda", of=2, source=sources[0]), made.disk("vdb", of=2, source=sources[1])]
    turned = [disk("vda", source=sources[1]), disk("vdb", source=sources[0])]
    for host in ("hv1", "hv2"):
        found = chains.plan(*seen(*turned, host=host), made.stock(made.backup(2, both)))
        assert all(one.parent is None for one in found), host


def test_increments_are_a_targets_own():
    """Two targets take turns: each goes on from its own last one."""
    here, there = made.stock(*made.chain([1])), made.stock(*made.chain([7]))
    marks = [chains.checkpoint(made.ident(one)) for one in (1, 7)]
    guest = seen(disk(bitmaps=dict.fromkeys(marks, GOOD)), checkpoints=marks)
    assert chains.plan(*guest, here)[0].since == marks[0]
    assert chains.plan(*guest, there)[0].since == marks[1]
    assert (chains.needed(here), chains.needed(there)) == ({marks[0]}, {marks[1]})


def test_a_checkpoint_goes_when_its_own_target_does_not_go_on_from_it():
    first = chains.checkpoint(made.ident(1))
    theirs = [first, LAST, "salt-virt.another", "a-users"]
    assert chains.superseded(theirs, made.stock(*TWO)) == {first}
    assert chains.superseded([LAST], made.stock()) == set(), "it may be another master's"
    unreadable = made.stock(*TWO, StoredBackup(made.ident(3), record_error="it is no JSON"))
    assert chains.superseded([LAST], unreadable) == {LAST}, "the next one there is whole"


def test_a_checkpoint_that_no_target_knows_is_abandoned_after_a_month():
    told = [chains.checkpoint(made.ident(1)), "salt-virt.x", "a-users"]
    assert chains.abandoned(told, "2026-12-23T15:52:19Z") == set()
    assert chains.abandoned(told, "2026-12-23T15:52:20Z") == {told[0]}


BITMAPS = st.dictionaries(
    st.integers(0, 5).map(lambda n: chains.checkpoint(made.ident(n))),
    st.sampled_from([GOOD, INCONSISTENT, DISABLED]),
)
SEEN = st.builds(
    disk,
    st.sampled_from(["vda", "vdb"]),
    size_bytes=st.sampled_from([made.GIB, 2 * made.GIB]),
    source=st.sampled_from([made.SOURCE, "file /b", "file /x/web1_system.qcow2"]),
    format=st.sampled_from(["qcow2", "raw"]),
    bitmaps=BITMAPS,
)


@st.composite
def stocks(draw):
    found = []
    for number in range(1, draw(st.integers(0, 5)) + 1):
        below = list(range(1, number))
        parent = draw(st.none() | st.sampled_from(below)) if below else None
        made_disk = made.disk(
            draw(st.sampled_from(["vda", "vda", "vdb"])), parent, number,
            checkpoint=draw(st.sampled_from([None, chains.checkpoint(made.ident(number))])),
        )  # fmt: skip
        bad = draw(st.sampled_from([False, False, True]))
        mark = Verification(WHEN, (made_disk.target,), {made_disk.target: "x"}) if bad else None
        found.append(made.backup(number, [made_disk], mark))
    return made.stock(*found)


@given(SEEN, stocks(), st.sampled_from(["hv1", "hv2"]), st.integers(1, 4), st.booleans())
def test_an_increment_is_always_on_a_good_one_that_its_bitmap_was_made_with(
    one, stock, host, chain, whole
):
    checkpoints = [chains.checkpoint(made.ident(n)) for n in range(6)]
    guest = seen(one, host=host, checkpoints=checkpoints)
    [found] = chains.plan(*guest, stock, chain, whole)
    if found.parent is None:
        assert found.reason and not found.since
        return
    taken = stock.backups[found.parent].record.disk(one.target)
    assert found.parent == max(stock.backups)
    assert stock.disk_problem(found.parent, one.target) is None
    assert found.since == taken.checkpoint == chains.checkpoint(found.parent)
    assert one.bitmaps[found.since] == GOOD
    assert (one.size_bytes, one.format) == (taken.size_bytes, "qcow2")
    assert len(stock.chain(found.parent, one.target)) < chain
    assert not whole
