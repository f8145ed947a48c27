"""Names of backups: their order does not depend on a clock."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltvirt.backup.model import backup_ids
from saltvirt.backup.model import listed as listed_module
from saltvirt.backup.model.answers import ListedBackup
from saltvirt.errors import InvalidInput, NotFound, Refused

ONE = "000001-20261123T155220Z-1f3a9c2e"


def test_the_first_and_the_next():
    assert backup_ids.following([], "2026-11-23T15:52:20Z", "1f3a9c2e") == ONE
    assert backup_ids.following([ONE], "1999-01-01T00:00:00Z", "0" * 8) == (
        "000002-19990101T000000Z-00000000"
    )


@given(st.lists(st.datetimes(), min_size=1, max_size=9))
def test_they_sort_as_they_were_made_whatever_the_clock_says(times):
    made = []
    for when in times:
        told = f"{when:%m-%dT%H:%M:%S}Z"
        made.append(backup_ids.following(made[::-1], f"{when.year:04d}-{told}", "0" * 8))
    assert sorted(made) == made
    assert len(set(made)) == len(times)


def test_the_last_number_is_the_last():
    last = backup_ids.following(
        ["999998-20261123T155220Z-1f3a9c2e"], "2026-11-23T15:52:20Z", "0" * 8
    )
    assert backup_ids.number(last) == 999999
    with pytest.raises(InvalidInput, match="no backup number is left"):
        backup_ids.following(["999999-20261123T155220Z-1f3a9c2e"], "2026-11-23T15:52:20Z", "0" * 8)


@pytest.mark.parametrize("when, chance", [("now", "0" * 8), ("2026-11-23T15:52:20Z", "../" * 3)])
def test_no_name_is_made_that_is_none(when, chance):
    with pytest.raises(ValueError):
        backup_ids.following([], when, chance)


@pytest.mark.parametrize(
    "text", ["", "..", "1", ONE.upper(), f"{ONE}\n", f"../{ONE}", ONE[1:], 7, None, ONE.encode()]
)
def test_what_is_no_name(text):
    assert not backup_ids.is_backup_id(text)


@pytest.mark.parametrize("asked", [ONE, "1", 1, " 1 ", "latest", "000001"])
def test_a_person_finds_it(asked):
    assert backup_ids.find([ONE], asked) == ONE


def test_the_latest_is_the_one_with_the_highest_number():
    assert backup_ids.find(["000002-19990101T000000Z-00000000", ONE], "latest").startswith("000002")


def test_what_is_not_there():
    with pytest.raises(NotFound, match=f"no backup '7' of it found; the newest is {ONE}"):
        backup_ids.find([ONE], "7")
    with pytest.raises(NotFound, match="no backup of it found"):
        backup_ids.find([], "latest")
    with pytest.raises(NotFound, match="no backup"):
        backup_ids.find([ONE], "²")
    two = "000002-19990101T000000Z-00000000"
    with pytest.raises(NotFound, match=f"no backup 'first' of it found; the newest is {two}"):
        backup_ids.find([ONE, two], "first")


def test_two_of_one_number():
    with pytest.raises(InvalidInput, match="use the full name"):
        backup_ids.find([ONE, ONE[:-1] + "f"], 1)


def test_a_disk_that_is_not_in_it_is_named_with_those_that_are():
    backup = ListedBackup(ONE, guest="web1", disks={"vdb": 9, "vda": 7})
    listed_module.refuse_unknown_disk(backup, "vda")
    with pytest.raises(NotFound, match=f"backup {ONE} has no disk 'vdc'; its disks are vda, vdb$"):
        listed_module.refuse_unknown_disk(backup, "vdc")


meant = functools.partial(listed_module.find_listed, target="vault")


def test_of_several_guests_of_one_name_the_uuid_says_which_is_meant():
    other = ONE.replace("000001", "000002")
    listed = [ListedBackup(ONE, guest="web1", uuid="u1"),
              ListedBackup(other, guest="web1", uuid="u2", problem="vda is missing")]  # fmt: skip
    with pytest.raises(
        InvalidInput, match=r"^several guests had the name web1: use one of the UUIDs u1, u2$"
    ):
        meant(listed, "web1", "latest")
    assert meant(listed, "u1", 1) is listed[0]
    with pytest.raises(Refused, match="is not good: vda"):
        meant(listed, "u2", "latest")
    words = "^no backup of web2 in the target vault found$"
    with pytest.raises(NotFound, match=words):
        meant(listed, "web2", "latest")
    words = f"^no backup '7' of u1 in the target vault found; the newest is {ONE}$"
    with pytest.raises(NotFound, match=words):
        meant(listed, "u1", 7)


def guests(*told):
    return [
        ListedBackup(f"{number:06d}-19990101T000000Z-00000000", guest=guest, uuid=uuid, **more)
        for number, guest, uuid, more in told
    ]


def test_backups_from_before_a_rename_are_the_guests_by_either_name_and_by_its_uuid():
    listed = guests((7, "web1", "u1", {}), (8, "web2", "u1", {}))
    for name in ("web2", "web1", "u1"):
        assert meant(listed, name, 7).backup_id.startswith("000007")
    # not backed up since: the cloud knows the UUID of web2
    assert meant(listed[:1], "web2", 7, uuid="u1").backup_id.startswith("000007")
    # another guest has the old name by now
    again = [*listed, *guests((1, "web1", "u2", {}))]
    assert meant(again, "web1", "latest").uuid == "u2"
    assert meant(again, "web2", "latest").uuid == "u1"


def test_the_latest_that_cannot_be_read_is_not_passed_over():
    listed = guests((1, "web1", "u1", {}), (2, None, "u1", {"problem": "record.json is no JSON"}))
    for name in ("web1", "u1"):
        with pytest.raises(Refused, match=r"backup 000002.*; the newest good one is 000001"):
            meant(listed, name, "latest", damaged=True)


def test_by_the_disk_that_is_wanted_it_is_judged():
    more = {"problem": "vdb: bad", "broken_disks": {"vdb": "bad"}}
    listed = guests((1, "web1", "u1", more))
    assert meant(listed, "web1", 1, "vda") is listed[0]
    assert meant(listed, "web1", 1, damaged=True) is listed[0]
    for disk in ("vdb", None):
        with pytest.raises(Refused, match="damaged=True restores what can be read"):
            meant(listed, "web1", 1, disk)
