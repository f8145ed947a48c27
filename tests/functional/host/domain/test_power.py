"""The power call: the verb is performed if the state of the guest permits it, and libvirt confirms
the result, all in one answer."""

import json
import os

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.host.domain import lifecycle, power
from saltvirt.host.migration import move_journal
from saltvirt.host.node import job_steps
from saltvirt.placement import calls as placement_calls
from tests.clock import Clock
from tests.functional import asking
from tests.functional.conftest import load_with_folders

ACTIVE = ["running", "paused"]
XML = "<domain type='test'><name>{}</name><memory>1024</memory><os><type>hvm</type></os></domain>"


@pytest.fixture
def host(conn, tmp_path):
    return load_with_folders(tmp_path, overcommit=True)


def state(conn, name="test"):
    return conn.lookupByName(name).state()[0]


@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("stop", "running", "shutdown"), ("start", "shutdown", "running"),
        ("pause", "running", "paused"), ("reset", "paused", "paused"),
        ("resume", "paused", "running"), ("shutdown", "running", "shutdown"),
    ],
)  # fmt: skip
def test_each_verb_says_what_the_guest_was_and_what_it_is(host, conn, verb, before, after):
    dom = conn.lookupByName("test")
    act = {"shutdown": dom.destroy, "paused": dom.suspend, "running": lambda: None}
    act[before]()
    said = asking.answer(host, "virt.power", "test", verb, [before])
    assert said == {"before": before, "after": after}
    assert host["virt.vm_state"]("test") == {"test": after}
    placement_calls.POWER.read(said, "hv1")


def test_in_another_state_nothing_is_done(host, conn):
    assert asking.answer(host, "virt.power", "test", "stop", ["paused"]) == {
        "before": "running",
        "after": None,
    }
    assert asking.answer(host, "virt.power", "none", "stop", ACTIVE) == {
        "before": None,
        "after": None,
    }
    assert state(conn) == libvirt.VIR_DOMAIN_RUNNING


@pytest.mark.parametrize("verb", ["stop", "shutdown"])
def test_a_transient_guest_is_gone_when_it_is_off(host, conn, verb):
    conn.createXML(XML.format("passing"), 0)
    said = asking.answer(host, "virt.power", "passing", verb, ACTIVE)
    assert said == {"before": "running", "after": "shutdown"}


def test_a_start_is_admitted_as_virt_start_is(conn, tmp_path):
    admits = load_with_folders(tmp_path)
    conn.lookupByName("test").destroy()
    little = {"placement": {"policy": {"memory_ratio": 0.1}}}
    with pytest.raises(errors.VirtError, match=r"no room: .*of memory requested"):
        asking.answer(admits, "virt.power", "test", "start", ["shutdown"], **little)
    assert state(conn) == libvirt.VIR_DOMAIN_SHUTOFF
    more = {**little, "overcommit": True}
    assert (
        asking.answer(admits, "virt.power", "test", "start", ["shutdown"], **more)["after"]
        == "running"
    )


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"verb": "undefine"}, "verb: unknown 'undefine'"),
        ({"states": "running"}, "states is not a list"),
        ({"states": [{}]}, r"states\.0"), ({"timeout": "soon"}, "timeout"),
    ],
)  # fmt: skip
def test_a_wrong_argument_changes_nothing(host, conn, argument, words):
    with pytest.raises(errors.VirtError, match=words):
        asking.answer(
            host, "virt.power", **{"name": "test", "verb": "stop", "states": ACTIVE, **argument}
        )
    assert state(conn) == libvirt.VIR_DOMAIN_RUNNING


# -- when no other host was asked ---------------------------------------------------------------


def last_seen(host, name="test"):
    return asking.answer(host, "virt.power", name, "stop", [*ACTIVE, "shutdown"], last_seen=True)


def test_one_that_is_active_here_is_the_one(host, conn):
    assert last_seen(host) == {"before": "running", "after": "shutdown"}


def test_one_that_is_off_here_may_be_elsewhere(host, conn):
    conn.lookupByName("test").destroy()
    assert last_seen(host) == {"before": None, "after": None}
    assert last_seen(host, "none") == {"before": None, "after": None}


class Dom:
    """A domain that libvirt works at, or not. state: as libvirt has it; job: its type."""

    def __init__(self, *state, job=0):
        self._state, self._job = [*state], job

    def lookupByName(self, _name):
        return self

    def name(self):
        return "web1"

    def state(self):
        return self._state

    def jobInfo(self):
        return [self._job]


PAUSED, RUNNING = libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_RUNNING


@pytest.mark.parametrize(
    ("dom", "known"),
    [
        (Dom(RUNNING, 1), "running"), (Dom(PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER), "paused"),
        (Dom(PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION), None), (Dom(RUNNING, 1, job=1), None),
        (Dom(RUNNING, libvirt.VIR_DOMAIN_PAUSED_MIGRATION), "running"),
        (Dom(RUNNING, 1, job=2), None),
        (Dom(libvirt.VIR_DOMAIN_SHUTOFF, 1), None),
    ],
)  # fmt: skip
def test_one_that_is_being_moved_may_be_on_another_host_the_next_moment(dom, known):
    assert power.before(dom, "web1", last_seen=True) == known
    assert power.before(dom, "web1", last_seen=False) is not None


def test_and_one_whose_migration_was_broken_off(monkeypatch):
    monkeypatch.setattr(move_journal, "names", lambda: ["web1"])
    assert power.before(Dom(RUNNING, 1), "web1", last_seen=True) is None
    assert power.before(Dom(RUNNING, 1), "web1", last_seen=False) == "running"


def test_the_volume_of_one_that_may_be_elsewhere_stays(host, conn):
    eject = host["virt.seed_eject"]
    assert eject("test", last_seen=True) is False
    conn.lookupByName("test").destroy()
    assert eject("test", last_seen=True) is None
    assert eject("none", last_seen=True) is None
    assert eject("test") is False


# -- a guest whose system takes its time ---------------------------------------------------------


class Slow(Dom):
    """One that is off so many seconds after it was first asked. asked: when it was, each time."""

    def __init__(self, clock, takes_s):
        super().__init__(RUNNING, 1)
        self.clock, self.takes_s, self.asked = clock, takes_s, []

    def shutdown(self):
        self.asked.append(self.clock.now)

    def isActive(self):
        return self.clock.now < self.takes_s


@pytest.mark.parametrize(
    ("takes_s", "timeout_s", "off", "asked"),
    [
        (25, 60, True, [0, 10, 20]), (99, 35, False, [0, 10, 20, 30]), (99, 0, False, [0]),
        (0, 0, True, [0]), (10, 10, True, [0]), (99, 20, False, [0, 10]),
    ],
)  # fmt: skip
def test_it_is_asked_again_every_ten_seconds_until_it_is_off(
    monkeypatch, takes_s, timeout_s, off, asked
):
    clock, steps_at = Clock(), []
    monkeypatch.setattr(lifecycle, "time", clock)
    dom = Slow(clock, takes_s)
    assert lifecycle.off_within(dom, timeout_s, lambda: steps_at.append(clock.now)) is off
    assert dom.asked == steps_at == asked


def test_the_master_is_told_that_it_goes_on_and_the_lock_is_not_held(host, tmp_path, monkeypatch):
    held, where = [], job_steps.folder(host["config.get"])

    def off_within(dom, timeout_s, asking):
        asking()
        held.append((timeout_s, os.listdir(tmp_path / "lock" / "guests")))
        return False

    monkeypatch.setattr(lifecycle, "off_within", off_within)
    said = asking.answer(host, "virt.power", "test", "shutdown", ["running"], timeout=7)
    assert said == {"before": "running", "after": "running"}
    assert held == [(7, [])]
    with open(os.path.join(where, str(os.getpid())), encoding="utf-8") as file:
        assert json.load(file)["within_s"] == 0
