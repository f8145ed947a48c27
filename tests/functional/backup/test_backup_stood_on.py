"""Pins of a backup are stored beside its record; a pinned backup is not removed, nor one whose pins
cannot be read."""

import json
import os
import shutil
from pathlib import Path

import pytest

from saltvirt import errors
from saltvirt.backup.model.pins import FILE, MAX_BYTES, BackupPin, PinnedBackup
from saltvirt.backup.model.retention import Retention
from saltvirt.backup.target import pins, prune
from tests.functional.backed_up import UUID, Guest

pytestmark = pytest.mark.skipif(not os.path.exists("/usr/bin/qemu-img"), reason="no qemu-img")
ONE, TWO = BackupPin("web1", "hv1", "2026-11-26T15:00:00Z"), BackupPin("web2", "hv2")


@pytest.fixture
def guest(tmp_path):
    """With two backups, each whole."""
    found = Guest(tmp_path / "target")
    found.back_up()
    found.back_up(whole=True)
    return found


def first(guest):
    return min(guest.target.catalog(UUID).backups)


def test_it_stays_until_the_last_is_let_go(guest):
    ident = first(guest)
    for one in (ONE, TWO, ONE):  # who comes again is there once
        pins.add_pin(guest.target.folder, UUID, ident, one)
    assert pins.load(guest.target.folder, UUID, ident) == (TWO, ONE)
    assert list(pins.list_all(guest.target.folder, guest.target.guests())) == [
        PinnedBackup(UUID, ident, one) for one in (TWO, ONE)
    ]
    assert pins.hold_reason(guest.target.folder, UUID, ident) == "web2 on hv2 runs from it"
    assert guest.target.remove(UUID, ident) is False
    # since when does not tell one from another; another host's guest of the name is another
    assert pins.remove_pin(guest.target.folder, UUID, ident, BackupPin("web1", "hv2")) is False
    assert pins.remove_pin(guest.target.folder, UUID, ident, BackupPin("web1", "hv1", "later"))
    assert not pins.remove_pin(guest.target.folder, UUID, ident, ONE)
    assert pins.load(guest.target.folder, UUID, ident) == (TWO,)
    assert pins.remove_pin(guest.target.folder, UUID, ident, TWO)
    assert FILE not in guest.target.folder.names(UUID, ident)
    assert guest.target.remove(UUID, ident)


def test_what_would_go_leaves_out_what_a_guest_stands_on_and_says_who(guest):
    ident = first(guest)
    pins.add_pin(guest.target.folder, UUID, ident, ONE)
    found = prune.prune_guest(guest.target, UUID, Retention(last=1), test=True)
    assert [(one.backup_id, one.reason) for one in found if one.retained][1:] == [
        (ident, ONE.hold_reason)
    ]


@pytest.mark.parametrize("by_hand", [False, True])
def test_one_on_which_a_guest_begins_to_stand_in_the_middle_stays(guest, monkeypatch, by_hand):
    """by_hand: beside it somebody takes away what was to stay. Nothing is told of that."""
    guest.back_up(whole=True)
    one, two, three = guest.target.catalog(UUID).backups
    remove = guest.target.remove

    def then_stood(uuid, ident):
        if ident == one and not pins.hold_reason(guest.target.folder, UUID, one):
            pins.add_pin(guest.target.folder, UUID, one, ONE)
            if by_hand:
                shutil.rmtree(Path(guest.target.folder.root, UUID, three))
        return remove(uuid, ident)

    monkeypatch.setattr(guest.target, "remove", then_stood)
    found = prune.prune_guest(guest.target, UUID, Retention(last=1))
    last = [] if by_hand else [(three, True)]
    assert [(one.backup_id, one.retained) for one in found] == [*last, (two, False), (one, True)]
    assert found[-1].reason == ("among the last 1" if by_hand else ONE.hold_reason)


def _deep(path):
    path.write_text("[" * 100_000)


UNREADABLE = {
    "damaged": lambda path: path.write_text("{"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "of another shape": lambda path: path.write_text(json.dumps({"pins": [{"guest": 7}]})),
    "nested": _deep,
    "too long": lambda path: path.write_bytes(b" " * (MAX_BYTES + 1)),
    "a link": lambda path: path.symlink_to("record.json"),
    "a folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("how", UNREADABLE)
def test_where_it_cannot_be_read_somebody_stands_on_it(guest, how):
    ident = first(guest)
    UNREADABLE[how](Path(guest.target.folder.root, UUID, ident, FILE))
    why = "an unknown guest on an unknown hypervisor runs from it"
    assert pins.hold_reason(guest.target.folder, UUID, ident) == why
    assert not guest.target.remove(UUID, ident)
    kept = prune.prune_guest(guest.target, UUID, Retention(last=1), False)
    assert (ident, True, why) in [(one.backup_id, one.retained, one.reason) for one in kept]
    for change in (pins.add_pin, pins.remove_pin):
        told = pins.UNREADABLE if change is pins.remove_pin else ONE
        with pytest.raises(errors.BadAnswer, match=f"cannot read {FILE} of {ident}: repair"):
            change(guest.target.folder, UUID, ident, told)
    assert os.path.lexists(f"{guest.target.folder.root}/{UUID}/{ident}/{FILE}")
