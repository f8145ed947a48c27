"""An interrupted migration whose guest is on a third host: neither of the two hosts finds the
guest, but the master does."""

# ruff: noqa: F811
import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.migration import api, departures, move_journal, unreachable_target
from saltvirt.migration.journal import MOVED, MOVING, PREPARING
from tests.functional.host.migration.test_migrate_ends import begun, came, peer, report  # noqa: F401
from tests.functional.host.migration.test_migrate_faults import dom, job  # noqa: F401
from tests.functional.host.migration.test_recovery import done, strict  # noqa: F401
from tests.functional.host.migration.test_unreachable_target import dead  # noqa: F401

WHY = "web1 is now on hv3: check it there before you delete this file"


def end(conn, job, about, **more):
    begun(job, about, created=("/there",), source_files=("/here",), **more)
    return api.recover(conn, job, elsewhere=["hv3"])


def unfinished(job):
    return move_journal.unfinished(job.journals)


@pytest.mark.parametrize("phase", [PREPARING, MOVING])
def test_what_it_left_here_stays_and_its_migration_ends(peer, dom, job, done, phase):
    conn, about = dom.connect(), report(dom)
    dom.undefine()
    found = end(conn, job, about, phase=phase)
    assert (found.outcome, found.target, found.retained) == ("moved", "hv3", {"/here": WHY})
    made = "cleaned" if phase == PREPARING else "released"
    assert done == [(made, ("/there",))], "the target may keep disks on purpose (keep_source)"
    assert unfinished(job) == {}
    assert "was migrated from here to hv3" in departures.departure_reason("web1")


def test_what_stays_here_on_purpose_is_not_named(peer, dom, job, done):
    conn, about = dom.connect(), report(dom)
    dom.undefine()
    assert end(conn, job, about, keep_source=True).retained == {}


def test_an_old_definition_does_not_start_by_itself_beside_it(peer, dom, job, done):
    dom.setAutostart(0)
    words = (
        r"web1 is now on hv3, and also defined on hv1: keep one, and run virt.undefine web1 on the "
        r"other host, .*; then salt-run virt.migrate_recover web1$"
    )
    with pytest.raises(errors.MigrationFailed, match=words):
        end(dom.connect(), job, report(dom))
    assert not dom.autostart() and done == []
    conn, about = dom.connect(), report(dom)
    dom.undefine()
    assert end(conn, job, about).outcome == "moved"


@pytest.mark.parametrize("start", [True, False])
def test_one_that_lives_here_or_is_on_the_target_is_looked_for_nowhere_else(
    peer, dom, job, done, start
):
    if start:
        dom.create()
    else:
        came(peer, dom)
    about = report(dom, active=start, state="running" if start else "shutdown")
    found = end(dom.connect(), job, about)
    assert (found.outcome, found.target) == ("undone", peer.getHostname())


def test_one_that_was_never_sent_is_here(peer, dom, job, done):
    assert end(dom.connect(), job, report(dom), phase=PREPARING).outcome == "undone"


def test_a_target_that_is_dead_is_not_needed(dead, dom):
    conn, about = dom.connect(), report(dom)
    dom.undefine()
    assert end(conn, dead, about).retained == {"/here": WHY}
    assert unfinished(dead) == {} and unreachable_target.unfinished(dead.journals) == {}
    assert end(conn, dead, about, phase=PREPARING).leftovers == {"hv2": "no route to host"}
    assert [*unreachable_target.unfinished(dead.journals)] == ["web1@hv2"]


def test_a_dead_target_and_an_old_definition_are_for_a_person(dead, dom):
    with pytest.raises(errors.MigrationFailed, match="web1 is now on hv3, and also defined on hv1"):
        end(dom.connect(), dead, report(dom))
    assert [*unfinished(dead)] == ["web1"]


# -- one that was moved, and came back ----------------------------------------------------


def test_a_guest_that_came_back_starts_with_its_host_as_before(peer, dom, job, done):
    """Only the files here were still to be removed when its migration died."""
    dom.setAutostart(1)
    found = end(dom.connect(), job, report(dom), phase=MOVED)
    assert (found.outcome, [*found.retained]) == ("moved", ["/here"])
    assert dom.autostart() and departures.departure_reason("web1") is None


def test_a_confirmed_move_changes_nothing_of_the_guest_on_its_target(peer, dom, job, done):
    """A person may have set it otherwise since."""
    there, conn, about = came(peer, dom), dom.connect(), report(dom)
    dom.undefine()
    there.setAutostart(0)
    assert end(conn, job, about, phase=MOVED).outcome == "moved"
    assert not there.autostart()
