"""The removal of a new disk when its operation fails: only this file, if nothing uses it."""

import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt.host.provision import undo_disks
from saltvirt.revert import UndoStack
from tests.functional.host.storage.test_usage import disk, place  # noqa: F401


def undone(place, path, guest=None, meanwhile=None, made=True):  # noqa: F811
    """What could not be undone."""
    undo = UndoStack()
    undo_disks.push(undo, place.conn, str(path), guest, exists=made)
    if meanwhile:
        meanwhile()
    undo.run()
    return undo.failed


def test_what_was_made_goes(place):  # noqa: F811
    assert undone(place, place.base) == []
    assert not place.base.exists()


def test_what_is_gone_already_is_undone(place):  # noqa: F811
    assert undone(place, place.base, meanwhile=place.base.unlink) == []
    place.guest(disk(place.root / "gone", "raw"))
    assert undone(place, place.root / "gone", made=False) == []


def test_what_was_just_made_goes_also_where_a_pool_is_not_started(place):  # noqa: F811
    place.pool("away", place.root / "away", kind="netfs")
    assert undone(place, place.base) == []
    assert not place.base.exists()


def test_another_file_of_the_name_stays(place):  # noqa: F811
    def replace():
        place.base.rename(place.root / "mine")
        place.base.write_bytes(b"theirs")

    [why] = undone(place, place.base, meanwhile=replace)
    assert f"{place.base} was not deleted: it is a different file now" in why
    assert place.base.read_bytes() == b"theirs"


def test_what_is_made_only_later_goes_too(place):  # noqa: F811
    path = place.root / "later"
    assert undone(place, path, made=False, meanwhile=lambda: path.write_bytes(b"x")) == []
    assert not path.exists()


def test_what_another_guest_uses_by_now_stays(place):  # noqa: F811
    own = place.guest(disk(place.base, "raw"), name="web1").UUIDString()
    [why] = undone(place, place.base)
    assert "used by web1" in why
    assert place.base.exists()
    assert undone(place, place.base, own) == []
    assert not place.base.exists()


def test_a_file_that_may_be_gone_is_removed(place):  # noqa: F811
    undo_disks.remove_file(str(place.base))
    undo_disks.remove_file(str(place.base))
    assert not os.path.lexists(place.base)
