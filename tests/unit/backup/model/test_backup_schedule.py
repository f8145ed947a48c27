"""The backup schedule of a guest."""

import pytest

from saltvirt.backup.model import backup_schedule
from saltvirt.backup.model.backup_schedule import BackupSchedule
from saltvirt.errors import InvalidInput


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (True, "yes"), (False, "no"), ({}, "yes"), ({"hours": 24}, "hours=24.0"),
        ({"to": "vault", "hours": "1.5"}, "hours=1.5 to=vault"), ({"to": "vault"}, "to=vault"),
    ],
)  # fmt: skip
def test_what_is_said_is_what_is_read(given, text):
    found = backup_schedule.parse(given, "guest web1")
    assert found.text == text
    assert backup_schedule.from_text(text) == found


@pytest.mark.parametrize(
    "given",
    ["yes", 24, [], {"hour": 1}, {"hours": -1}, {"hours": "soon"}, {"hours": True}, {"to": ""},
     {"to": "a b"}, {"to": ["vault"]}, {1: 2}],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(given):
    with pytest.raises(InvalidInput, match="guest web1: backup"):
        backup_schedule.parse(given, "guest web1")


@pytest.mark.parametrize("text", [None, "", "x", "hours=inf", "hours=-1", "hours=a", "what=1"])
def test_what_nobody_can_read_says_nothing(text):
    assert backup_schedule.from_text(text) is None


def test_it_is_taken_out_of_what_a_guest_says():
    assert backup_schedule.split_options({"mem": 1, "backup": {"to": "v"}}, "g") == (
        {"mem": 1},
        BackupSchedule(True, None, "v"),
    )
    assert backup_schedule.split_options({"mem": 1, "backup": None}, "g") == ({"mem": 1}, None)
