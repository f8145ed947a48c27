"""Whether a guest has moved, from both libvirts, and what may be removed here."""

# ruff: noqa: F811
import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.migration import confirm, remote_storage, target_leftovers
from saltvirt.host.storage import sharing, usage
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import MOVED, JournalEntry
from tests.functional.conftest import EMPTY
from tests.functional.host.migration.test_migrate_faults import dom  # noqa: F401
from tests.functional.host.storage.test_usage import create, disk, place  # noqa: F401

GONE = "6f3c7a4e-62c7-4d5f-8f0e-0d8f0b6c9b11"


def report(dom, active=False, **more):
    return GuestReport("web1", dom.UUIDString(), "hv1", active, "x", **more)


@pytest.fixture
def peer():
    conn = libvirt.open(EMPTY)
    yield conn
    conn.close()


def came(peer, dom, start=False, persistent=True):
    text = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    there = peer.defineXML(text) if persistent else peer.createXML(text)
    if start and persistent:
        there.create()
    return there


@pytest.mark.parametrize("active", [True, False])
def test_a_guest_that_is_there_as_it_was_here_has_moved(peer, dom, active):
    there = came(peer, dom, active)
    found = confirm.confirm(dom.connect(), peer, report(dom, active))
    assert found.UUIDString() == there.UUIDString()
    assert found.connect() is peer


def test_a_guest_that_is_not_there_has_not_moved(peer, dom):
    words = "libvirt reported success, but on .* the guest is unknown; nothing was deleted"
    with pytest.raises(errors.MigrationFailed, match=words):
        confirm.confirm(dom.connect(), peer, report(dom))


@pytest.mark.parametrize(("was", "words"), [(True, "is not active"), (False, "is active")])
def test_a_guest_that_is_there_otherwise_has_not_moved(peer, dom, was, words):
    came(peer, dom, start=not was)
    with pytest.raises(errors.MigrationFailed, match=f"the guest {words}; nothing was deleted"):
        confirm.confirm(dom.connect(), peer, report(dom, was))


def test_a_guest_that_is_to_stay_there_is_defined(peer, dom):
    came(peer, dom, persistent=False)
    about = report(dom, active=True)
    with pytest.raises(errors.MigrationFailed, match="the guest is not defined on"):
        confirm.confirm(dom.connect(), peer, about)
    assert confirm.confirm(dom.connect(), peer, about, persistent=False) is not None


def test_a_guest_that_runs_on_both_is_said(peer, dom):
    came(peer, dom, start=True)
    dom.create()
    with pytest.raises(errors.MigrationFailed, match="split brain: the guest is running on both"):
        confirm.confirm(dom.connect(), peer, report(dom, active=True))
    dom.destroy()
    conn = dom.connect()
    dom.undefine()
    assert confirm.confirm(conn, peer, report(peer.lookupByName("web1"), active=True))


def test_what_cannot_be_asked_is_no_answer(dom):
    class Cut:
        def lookupByUUIDString(self, uuid):
            raise libvirt.libvirtError("client socket is closed")

    with pytest.raises(libvirt.libvirtError):
        confirm.find(Cut(), GONE)
    assert confirm.find(dom.connect(), GONE) is None
    assert confirm.find(dom.connect(), dom.UUIDString()).name() == "web1"


@pytest.mark.parametrize("wanted", [True, False])
def test_who_starts_a_guest_is_who_has_it(peer, dom, wanted):
    there = came(peer, dom)
    dom.setAutostart(1)
    there.setAutostart(int(not wanted))
    confirm.transfer_autostart(dom.connect(), peer, report(dom, autostart=wanted))
    assert (dom.autostart(), there.autostart()) == (0, int(wanted))
    there.undefine()
    dom.setAutostart(1)
    confirm.transfer_autostart(dom.connect(), peer, report(dom, autostart=wanted))
    assert dom.autostart() == 0
    dom.undefine()
    there = came(peer, dom.connect().lookupByName("test"))
    confirm.transfer_autostart(dom.connect(), peer, report(there, autostart=wanted))
    assert there.autostart() == int(wanted)


def test_a_guest_that_is_defined_nowhere_is_started_by_nobody(peer, dom):
    came(peer, dom, persistent=False)
    conn = dom.connect()
    text = dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    dom.undefine()
    here, there = conn.createXML(text), peer.lookupByName("web1")
    here.setAutostart(1)  # QEMU's driver would refuse it of a transient one
    confirm.transfer_autostart(conn, peer, report(there, autostart=True))
    assert (here.autostart(), there.autostart()) == (1, 0), "nobody was asked to"
    here.destroy()


def test_a_target_that_fails_at_the_checkpoints_is_told_of_in_its_words(peer, dom):
    """The guest has moved by then: an error would say that it has not."""
    entry = JournalEntry(report(dom), "qemu+tls://hv2/system", MOVED)
    assert confirm.send_checkpoints(peer, entry) == {}, "it is not there"
    cut = libvirt.open(EMPTY)
    cut.close()
    assert "invalid connection" in confirm.send_checkpoints(cut, entry)["all"]


# -- what it left here --------------------------------------------------------------------

WEB1 = GuestReport("web1", GONE, "hv1", False, "shutdown")


@pytest.fixture
def gone(place, tmp_path, monkeypatch):
    """What libvirt was asked to delete: a function says what it then answers."""
    asked = []

    def delete(conn, path):
        asked.append(path)
        os.unlink(path)
        return True

    monkeypatch.setattr(remote_storage, "delete", delete)
    monkeypatch.setattr(target_leftovers, "FOLDER", str(tmp_path / "notes"))
    return asked


def test_what_the_guest_left_goes(place, gone):
    second = create(place.root / "data" / "second")
    (place.root / "link").symlink_to(second)
    paths = [str(place.base), str(place.root / "link")]
    deleted, kept = confirm.remove_source(place.conn, WEB1, iter(paths))
    assert (sorted(deleted), kept) == (sorted(paths), {})
    assert sorted(gone) == sorted([str(place.base), str(second)])
    assert not os.path.lexists(place.root / "link")
    assert not os.path.exists(target_leftovers.FOLDER), "there is nothing to note"


def test_a_disk_that_another_guest_needs_stays(place, gone):
    place.guest(disk(create(place.above, place.base)), name="web2")
    found = confirm.remove_source(place.conn, WEB1, [str(place.base)])
    assert found == ([], {str(place.base): "used by web2"})
    beside = create(place.root / "data" / "loose.qcow2", place.base)
    place.conn.lookupByName("web2").undefine()
    found = confirm.remove_source(place.conn, WEB1, [str(place.base)])
    assert found == ([], {str(place.base): f"used by {beside}"})
    assert gone == []


def test_what_stays_there_all_the_same_is_said(place, gone, monkeypatch):
    path = str(place.base)
    for answer in (True, False):
        monkeypatch.setattr(remote_storage, "delete", lambda conn, path, said=answer: said)
        found = confirm.remove_source(place.conn, WEB1, [path])
        assert found == ([], {path: "libvirt's storage pool does not show it"})

    def fail(conn, path):
        raise errors.OperationFailed("disk busy")

    monkeypatch.setattr(remote_storage, "delete", fail)
    assert confirm.remove_source(place.conn, WEB1, [path]) == ([], {path: "disk busy"})
    assert place.base.exists()


def test_what_was_gone_already_is_neither(place, gone, monkeypatch):
    def nothing(conn, path):
        gone.append(path)
        return False

    monkeypatch.setattr(remote_storage, "delete", nothing)
    path = str(place.root / "data" / "none.raw")
    assert confirm.remove_source(place.conn, WEB1, [path]) == ([], {})
    assert gone == [path]
    dangling = place.root / "dangling"
    dangling.symlink_to(path)
    confirm.remove_source(place.conn, WEB1, [str(dangling)])
    assert dangling.is_symlink(), "a link whose disk was not deleted here is nobody's business"


def test_a_device_goes_by_the_name_that_it_was_given(place, gone, monkeypatch):
    """libvirt's pool knows it by that one."""
    link = place.root / "vg" / "lv"
    link.parent.mkdir()
    link.symlink_to("/dev/null")
    monkeypatch.setattr(usage, "decide", lambda conn, held, used: (list(held), {}, {}))
    confirm.remove_source(place.conn, WEB1, [str(link)])
    assert gone == [str(link)]


def test_what_others_may_have_is_noted_for_them(place, gone, monkeypatch):
    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs4")
    deleted, kept = confirm.remove_source(place.conn, WEB1, [str(place.base)])
    assert (deleted, list(kept), gone) == ([], [str(place.base)], [])
    assert target_leftovers.names() == ["web1"]


def test_what_could_not_be_noted_is_said_with_what_is_kept(place, gone, monkeypatch):
    def full(name, paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sharing, "sharing_reason", lambda path: "nfs4")
    monkeypatch.setattr(target_leftovers, "record_local", full)
    _, kept = confirm.remove_source(place.conn, WEB1, [str(place.base)])
    assert "were not asked; " in kept[str(place.base)]
    assert kept[str(place.base)].endswith(
        "it could not be recorded: [Errno 28] No space left on device"
    )
