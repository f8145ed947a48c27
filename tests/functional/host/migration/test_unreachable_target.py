"""An interrupted migration whose target does not answer: its record, and its later end."""

# ruff: noqa: F811
import os
from dataclasses import replace

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.migration import move_journal, recovery, reservations, unreachable_target
from saltvirt.migration.facts import GuestReport
from saltvirt.migration.journal import MOVED, MOVING, PAUSED, PREPARING, TargetLeftovers
from saltvirt.system import message_file
from tests.functional.host.migration.test_migrate_ends import begun, peer, report  # noqa: F401
from tests.functional.host.migration.test_migrate_faults import XML, dom, job  # noqa: F401
from tests.functional.host.migration.test_recovery import waits  # noqa: F401

URI = "qemu+tls://hv2/system"
GONE = "6f3c7a4e-62c7-4d5f-8f0e-0d8f0b6c9b11"


@pytest.fixture
def dead(monkeypatch, job):
    """The target does not answer."""

    def at(_job, _uri):
        raise errors.ConnectionFailed("no route to host")

    monkeypatch.setattr(recovery, "connect_target", at)
    monkeypatch.setattr(recovery, "has_job", lambda _dom: False)
    return job


def end(conn, job, about, lost=None, **more):
    journal = begun(job, about, created=("/a",), folders=("/f",), **more)
    return unreachable_target.end_migration(conn, journal, job, lost)


def note_of(job):
    return message_file.read(f"{job.journals}/left/web1@hv2.json", TargetLeftovers)


@pytest.mark.parametrize("lost", [None, "hv2"])
def test_what_it_holds_is_written_down(dead, dom, lost):
    found = end(dom.connect(), dead, report(dom), lost, phase=PREPARING)
    assert (found.name, found.outcome) == ("web1", "undone")
    assert found.leftovers == {"hv2": "it does not answer"}
    note = note_of(dead)
    wanted = TargetLeftovers(
        "web1", ("/a",), None, ("/f",), uuid=dom.UUIDString(), target=URI,
        since=note.since, operator_confirmed=lost is not None,
    )  # fmt: skip
    assert note == wanted
    assert note.since > 0
    assert os.stat(f"{dead.journals}/left").st_mode & 0o7777 == 0o700
    assert move_journal.MigrationJournal(dead.journals, "web1").read() is None


def test_what_it_holds_is_written_down_beside_what_others_hold(dead, dom):
    left(dead, name="db1")
    end(dom.connect(), dead, report(dom), phase=PREPARING)
    assert unreachable_target.leftover_keys(dead.journals) == ["db1@hv2", "web1@hv2"]


def test_a_guest_that_is_not_here_may_be_there(dead, dom):
    """Nobody has seen it go, and its target has not been sent it."""
    conn, about = dom.connect(), report(dom)
    dom.undefine()
    words = r"hv2 does not answer and may run web1: .*no route to host; .* lost=hv2$"
    with pytest.raises(errors.ConnectionFailed, match=words):
        end(conn, dead, about, phase=PREPARING)


def test_a_guest_that_was_being_sent_may_be_there(dead, dom):
    """It is still here, too; only a person can say that it does not run there."""
    with pytest.raises(errors.ConnectionFailed, match="hv2 does not answer and may run web1"):
        end(dom.connect(), dead, report(dom), phase=MOVING)
    assert unreachable_target.leftover_keys(dead.journals) == []


def test_who_says_that_it_is_lost_says_which_and_all_are_told(dead, dom):
    told = []
    dead = replace(dead, on_target_lost=told.append)
    words = r"web1 was being migrated to hv2, not to hv3: pass lost=hv2 if that host is lost"
    with pytest.raises(errors.InvalidInput, match=words):
        end(dom.connect(), dead, report(dom), "hv3")
    assert told == []
    assert end(dom.connect(), dead, report(dom), "hv2").outcome == "undone"
    assert told == ["hv2"]


def test_a_guest_that_only_the_lost_host_had_is_not_said_to_be_here(dead, dom):
    conn, about = dom.connect(), report(dom)
    dom.undefine()
    words = (
        r"web1 cannot run here without hv2: it is on neither host; .* is in .*/web1\.json: define "
        r"it again from that file; if it was removed intentionally, remove that file$"
    )
    with pytest.raises(errors.MigrationFailed, match=words):
        end(conn, dead, about, "hv2")
    assert move_journal.MigrationJournal(dead.journals, "web1").read() is not None


def test_what_a_guest_left_here_stays_when_the_host_that_had_taken_it_is_lost(dead, dom):
    """Both hosts had confirmed the move: only the files here were still to be removed."""
    conn, about = dom.connect(), report(dom)
    dom.undefine()
    with pytest.raises(errors.ConnectionFailed, match=r"lost=hv2$"):
        end(conn, dead, about, phase=MOVED, source_files=("/vm/web1",))
    found = end(conn, dead, about, "hv2", phase=MOVED, source_files=("/vm/web1",))
    why = "web1 was migrated to hv2, which is lost: this may be its last copy"
    assert (found.outcome, found.target, found.retained) == ("moved", "hv2", {"/vm/web1": why})
    assert move_journal.MigrationJournal(dead.journals, "web1").read() is None
    assert unreachable_target.leftover_keys(dead.journals) == []


def test_a_move_that_is_over_asks_nobody_where_the_guest_is(dead, dom):
    conn, about = dom.connect(), report(dom)
    dom.undefine()
    found = end(conn, dead, about, phase=MOVING, completed=True)
    assert (found.outcome, list(found.leftovers)) == ("nothing", ["hv2"])


@pytest.mark.parametrize(("state", "after"), [("running", "running"), ("paused", "paused")])
def test_a_guest_that_waits_for_it_runs_on_as_it_did(dead, dom, waits, state, after):
    dom.create()
    dom.suspend()
    about = report(dom, active=True, state=state)
    assert end(dom.connect(), dead, about, "hv2").outcome == "undone"
    assert recovery.lookup.state(dom) == after


def test_a_guest_that_its_migration_has_paused_runs_on(dead, dom):
    dom.create()
    dom.suspend()
    about = report(dom, active=True, state="running")
    assert end(dom.connect(), dead, about, "hv2", pause=PAUSED).outcome == "undone"
    assert recovery.lookup.state(dom) == "running"


def test_nothing_is_decided_while_libvirt_is_at_work(dead, dom, monkeypatch):
    monkeypatch.setattr(recovery, "has_job", lambda _dom: True)
    dom.create()
    with pytest.raises(errors.OperationFailed, match="libvirt is still migrating web1"):
        end(dom.connect(), dead, report(dom, active=True, state="running"), "hv2")
    with pytest.raises(errors.OperationFailed, match="libvirt is still migrating web1"):
        unreachable_target._settle_on_source(
            dom.connect(), move_journal.MigrationJournal(dead.journals, "web1"),
            move_journal.MigrationJournal(dead.journals, "web1").require_entry(), "hv2",
        )  # fmt: skip


# -- when it answers ----------------------------------------------------------------------


def left(job, name="web1", host="hv2", **more):
    """A note of what a host may still hold; its path."""
    note = TargetLeftovers(
        name, ("/a",), uuid=more.pop("uuid", GONE), target=f"qemu+tls://{host}/system"
    )
    path = f"{job.journals}/left/{name}@{host}.json"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    message_file.write(path, replace(note, **more))
    return path


@pytest.fixture
def cleaned(monkeypatch):
    found = []

    def cleaned(_peer, made):
        found.append(made.target)
        return [f"/gone on {made.target}"], {f"/kept on {made.target}": "open"}

    monkeypatch.setattr(recovery, "undo_target", cleaned)
    return found


def test_each_host_takes_away_what_it_has_of_this_guest(peer, job, cleaned):
    mine, second, others = left(job), left(job, host="hv3"), left(job, name="db1")
    assert unreachable_target.leftover_keys(job.journals) == ["db1@hv2", "web1@hv2", "web1@hv3"]
    gone, kept, still = unreachable_target.hand_over(job)
    uris = [URI, "qemu+tls://hv3/system"]
    assert cleaned == uris
    assert gone == [f"/gone on {uri}" for uri in uris]
    assert kept == {f"/kept on {uri}": "open" for uri in uris}
    assert still == {}
    assert [os.path.exists(path) for path in (mine, second, others)] == [False, False, True]


def test_one_host_alone_can_be_asked(peer, job, cleaned):
    mine, second = left(job), left(job, host="hv3")
    assert unreachable_target.hand_over(job, "hv3")[0] == ["/gone on qemu+tls://hv3/system"]
    assert (os.path.exists(mine), os.path.exists(second)) == (True, False)


def test_a_note_that_cannot_be_read_is_named_and_stays(peer, job, cleaned):
    path = left(job)
    with open(path, "w", encoding="utf-8") as file:
        file.write("{")
    gone, kept, still = unreachable_target.hand_over(job)
    assert (gone, kept, cleaned) == ([], {}, [])
    words = "it recorded the leftovers of web1 on hv2: check its files there, and remove this file"
    assert path in still["hv2"]
    assert words in still["hv2"]
    assert words in unreachable_target.unfinished(job.journals)["web1@hv2"].problem
    assert os.path.exists(path)


def test_a_note_that_goes_meanwhile_is_none(peer, job, cleaned, monkeypatch):
    left(job)
    monkeypatch.setattr(message_file, "read", lambda path, kind: None)
    assert unreachable_target.hand_over(job) == ([], {}, {})
    assert unreachable_target.unfinished(job.journals) == {}
    assert cleaned == []


@pytest.mark.parametrize("back", ["by its UUID", "by its name", "on its way", "not"])
def test_what_is_of_a_guest_that_is_there_again_stays(peer, job, cleaned, back):
    uuid = GONE
    peer.storagePoolCreateXML(
        f"<pool type='dir'><name>kept</name><target><path>{reservations.FOLDER}</path></target>"
        "</pool>"
    )
    coming = reservations.reservation_path(
        GuestReport("web1", "u", "hv1", False, "x", memory_kib=1), []
    )
    if back.startswith("by its"):
        there = peer.defineXML(XML.replace("web1", "another") if "UUID" in back else XML)
        uuid = there.UUIDString() if "UUID" in back else GONE
    if back == "on its way":
        reservations.remote_storage.create(peer.storagePoolLookupByName("kept"), coming, "raw", 0)
    path = left(job, created=("/a",) if back == "on its way" else ("/a", coming), uuid=uuid)
    gone, _, still = unreachable_target.hand_over(job)
    assert bool(cleaned) == bool(gone) == (back == "not") != os.path.exists(path)
    words = {
        "not": "", "on its way": "web1 is being migrated to hv2 again: wait for it",
        "by its UUID": "hv2 has a guest web1, and files of an interrupted migration",
        "by its name": "salt hv2 virt.undefine web1 keeps its disks",
    }  # fmt: skip
    assert words[back] in still.get("hv2", "")


def test_its_own_reservation_does_not_count(peer, job, cleaned):
    peer.storagePoolCreateXML(
        f"<pool type='dir'><name>kept</name><target><path>{reservations.FOLDER}</path></target>"
        "</pool>"
    )
    own = reservations.reservation_path(
        GuestReport("web1", "u", "hv1", False, "x", memory_kib=1), []
    )
    reservations.remote_storage.create(peer.storagePoolLookupByName("kept"), own, "raw", 0)
    left(job, created=(own,))
    assert unreachable_target.hand_over(job)[2] == {}


def test_what_was_left_is_told_of_with_the_migrations(job):
    left(job)
    [(key, found)] = unreachable_target.unfinished(job.journals).items()
    assert (key, found.target, found.has_leftovers) == ("web1@hv2", URI, True)
    assert unreachable_target.unfinished(job.journals + "/none") == {}
