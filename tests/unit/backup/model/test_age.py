"""The newest good backup of a guest."""

from saltvirt.backup.model import age, record
from saltvirt.backup.model.answers import ListedBackup

NOW_S = record.moment("2026-11-23T12:00:00Z").timestamp()


def listed(ident, when, **other):
    return ListedBackup(ident, when, "hv1", "web1", **{"uuid": "u", **other})


def test_the_newest_good_one_of_that_guest_counts():
    old, new = listed("a", "2026-11-21T12:00:00Z"), listed("b", "2026-11-22T12:00:00Z")
    others = [
        listed("c", "2026-11-23T11:00:00Z", uuid="another"),
        listed("d", "2026-11-23T11:00:00Z", problem="torn"),
        listed("e", "2026-11-23T12:00:01Z"), listed("f", "yesterday"), listed("g", None),
    ]  # fmt: skip
    for several in ([old, new, *others], [*others, new, old]):
        assert age.newest(several, "u", NOW_S) == (86400, new)
    assert age.newest(others, "u", NOW_S) is None


def test_one_of_this_very_second_counts():
    now = listed("a", "2026-11-23T12:00:00Z")
    assert age.newest([now], "u", NOW_S) == (0, now)


def test_of_one_second_the_highest_id_is_the_newest():
    first, last = (listed(f"00000{number}-x", "2026-11-23T11:00:00Z") for number in (1, 2))
    for several in ([first, last], [last, first]):
        assert age.newest(several, "u", NOW_S) == (3600, last)
