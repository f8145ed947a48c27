"""The agent of high availability: its files, observations and actions, without libvirt's daemon."""

import io
import json
import os
import subprocess
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("libvirt")

from saltvirt import errors
from saltvirt.ha.agent import guests as agent_guests
from saltvirt.ha.agent import (
    inbox,
    instances,
    managed_guests,
    migrations,
    pool_heartbeat,
    settings,
    shared_definitions,
    shutdown_reason,
    store,
    watchdog,
)
from saltvirt.ha.agent.definitions import DefinitionCache
from saltvirt.ha.agent.definitions import parse as definition
from saltvirt.ha.agent.guests import Guests, LibvirtConfig
from saltvirt.ha.agent.health import Health
from saltvirt.ha.agent.instances import PAUSED, DomainListing, DomainState, Instance, InstanceTable
from saltvirt.ha.model import agent_view, messages
from saltvirt.ha.model.agent_view import SavedAgentState
from saltvirt.ha.model.messages import FenceVote, GuestStatus, Heartbeat, HostState, LeaderMessage
from saltvirt.ha.model.registry import GuestLocation, HaGuestRecord, HostRecord, Registry
from saltvirt.ha.transport import addresses
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import guest_lock
from saltvirt.host.migration import departures
from saltvirt.system import atomic_file, mounts
from tests.clock import Clock, until
from tests.driver import only_test

GOOD = {"host": "hv1", "members": {"hv1": "10.0.0.1", "hv2": "10.0.0.2:17000"}, "masters": ["salt"]}


# -- settings --------------------------------------------------------------------------------------


def test_settings_are_read():
    found = settings.parse({**GOOD, "policy": {"watchdog_s": 20}}, "x")
    assert found.endpoint("hv2") == ("10.0.0.2", 17000)
    assert found.endpoint("hv1") == ("10.0.0.1", 16516)
    assert found.ha_policy.watchdog_s == 20
    assert found.credentials.server.key == "/etc/pki/libvirt/private/serverkey.pem"


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"host": "hv9"}, "host hv9 is not among the members"),
        ({"masters": ["hv2"]}, "hv2 is both a member and a master"),
        ({"members": {"hv1": "10.0.0.1:x"}}, "neither ADDRESS nor ADDRESS:PORT"),
        ({"members": {"hv1": "a", "../x": "b"}}, "cannot be the name of a certificate"),
        ({"members": {"hv1": "a", "x" * 65: "b"}}, "cannot be the name of a certificate"),
        ({"members": {"hv1": 1}}, "members.hv1 is not text"),
        ({"members": {"hv1": "hv1.example.org"}}, "must be an IP address, not 'hv1.example.org'"),
        ({"pools": ["srv"]}, "is not an absolute path"),
        ({"watchdog": "watchdog"}, "not an absolute path"),
        ({"colour": 1}, "unknown settings colour"),
        ({"policy": {"wacthdog_s": 1}}, "policy.wacthdog_s is unknown"),
        ({"policy": {"watchdog_s": "1"}}, "policy.watchdog_s must be a number"),
        ({"policy": {"shutdown_policy": "x"}}, "policy.shutdown_policy must be one of"),
        ({"policy": {"beat_s": 5}}, "beat_s must be shorter"),
    ],
)
def test_settings_that_are_wrong_are_told(changes, words):
    with pytest.raises(errors.InvalidInput, match=words):
        settings.parse({**GOOD, **changes}, "ha.json")


@pytest.mark.parametrize("text", [b"", b"[", b"[]", b"\xff", b"[" * 100_000])
def test_a_file_of_settings_that_is_none_is_told(tmp_path, text):
    (tmp_path / "ha.json").write_bytes(text)
    with pytest.raises(errors.VirtError, match=r"ha\.json"):
        settings.read(str(tmp_path / "ha.json"))


@pytest.mark.parametrize("text", ["[::1]:17", "[::1]", "::1", "fe80::1"])
def test_addresses_of_six(text):
    host, port = addresses.parse(text, 5)
    assert (host, port) == ("fe80::1" if "fe" in text else "::1", 17 if "17" in text else 5)


# -- what it keeps ---------------------------------------------------------------------------------

REGISTRY = Registry(
    3, 7, True, ("hv1", "hv2"), (), {"hv1": HostRecord("up", boot=4)},
    {"web1": HaGuestRecord(
        "placed", epoch=2, host="hv1", boot=4, locations=(GuestLocation("hv1", 4),))},
)  # fmt: skip
KEPT = SavedAgentState(
    {"hv2": FenceVote(1, 3, 7)},
    {"hv2": HostState(1, 5, True, 10)},
    3,
    "salt",
    9,
    REGISTRY,
    REGISTRY,
)


def folders(tmp_path):
    return str(tmp_path / "state"), str(tmp_path / "run")


def test_what_is_kept_is_there_after_a_loss_of_power(tmp_path):
    one = store.AgentStore(*folders(tmp_path), "boot-1")
    one.begin("hv1", 5)
    one.save(KEPT)
    state, leased_s = store.AgentStore(*folders(tmp_path), "boot-2").begin("hv1", 1)
    assert state.saved == KEPT and leased_s is None


def test_boots_rise_once_for_each_run_of_the_kernel_and_over_a_new_installation(tmp_path):
    def boot(boot_id, at=tmp_path):
        return store.AgentStore(*folders(at), boot_id).begin("hv1", 1)[0].boot

    first = boot("a")
    assert first > 1_700_000_000
    assert boot("a") == first
    second = boot("b")
    assert second > first
    (tmp_path / "state/boot.json").write_text(json.dumps({"boot_id": "b", "boot": 2**40}))
    assert boot("c") == 2**40 + 1
    assert boot("a", tmp_path / "new") >= first


def test_a_host_that_lost_the_file_of_its_boots_has_not_booted_again(tmp_path):
    """Its agent killed all its guests, and the others had a proof that none of them ran."""
    one = store.AgentStore(*folders(tmp_path), "a")
    state, _ = one.begin("hv1", 5)
    state = replace(state, boot=state.boot + 3)
    one.renew(state.boot)
    one.save_runtime(replace(state, believed=True))
    (tmp_path / "state/boot.json").unlink()
    again, _ = store.AgentStore(*folders(tmp_path), "a").begin("hv1", 6)
    assert (again.boot, again.believed) == (state.boot, True)
    (tmp_path / "state/boot.json").unlink()
    assert store.AgentStore(*folders(tmp_path), "b").begin("hv1", 7)[0].boot != state.boot


def test_times_that_were_announced_are_found_by_the_next_agent(tmp_path):
    one = store.AgentStore(*folders(tmp_path), "a")
    state, _ = one.begin("hv1", 5)
    one.save_runtime(replace(state, feed_lease_s=8, watchdog_s=10))
    again, _ = store.AgentStore(*folders(tmp_path), "a").begin("hv1", 6)
    assert (again.feed_lease_s, again.watchdog_s, again.first_seq) == (8, 10, again.seq + 1)


def test_a_longer_time_out_is_not_set_before_others_know(device, monkeypatch):
    driver = Driver(monkeypatch)
    one = watchdog.WatchdogDevice(str(device), 30, 10)
    assert one.timeout_s == 30
    one.arm()
    assert driver.timeout_s == 10 and one.timeout_s == 30
    one.accept_timeout(10)
    assert driver.timeout_s == 10
    one.accept_timeout(30)
    assert driver.timeout_s == 30 and one.timeout_s == 30
    one.disarm()


def test_the_agents_own_restart_finds_what_it_needs_and_that_of_its_host_does_not(tmp_path):
    one = store.AgentStore(*folders(tmp_path), "a")
    state, _ = one.begin("hv1", 5)
    tried = {"web1": 3}
    one.save_runtime(
        replace(
            state, seq=9000, believed=True, tried=tried, phase=messages.RESTING, lease_from_s=4.5
        )
    )
    again, leased_s = store.AgentStore(*folders(tmp_path), "a").begin("hv1", 6)
    assert (again.seq, again.believed, again.tried, leased_s) == (9000, True, tried, 4.5)
    assert again.lease_from_s is None and again.phase == messages.RESTING
    other, leased_s = store.AgentStore(*folders(tmp_path), "b").begin("hv1", 6)
    assert (other.believed, other.tried, leased_s) == (False, {}, None)


def test_a_watchdog_that_was_about_to_be_opened_is_known_to_the_next_agent(tmp_path):
    one = store.AgentStore(*folders(tmp_path), "a")
    state, _ = one.begin("hv1", 5)
    one.opened = True
    one.save_runtime(state)
    again, other = (store.AgentStore(*folders(tmp_path), boot_id) for boot_id in "ab")
    again.begin("hv1", 6)
    assert again.opened
    other.begin("hv1", 6)
    assert not other.opened


def test_a_renewed_boot_is_that_of_the_next_start(tmp_path):
    one = store.AgentStore(*folders(tmp_path), "a")
    state, _ = one.begin("hv1", 5)
    one.renew(state.boot + 1)
    assert store.AgentStore(*folders(tmp_path), "a").begin("hv1", 6)[0].boot == state.boot + 1


@pytest.mark.parametrize("name", ["state", "boot"])
@pytest.mark.parametrize("text", ["", "{", '{"term": "x"}', "[]", '{"boot": -1}'])
def test_a_damaged_file_ends_the_agent(tmp_path, name, text):
    one = store.AgentStore(*folders(tmp_path), "a")
    one.begin("hv1", 5)
    (tmp_path / f"state/{name}.json").write_text(text)
    with pytest.raises(errors.BadAnswer, match=f"{name}[.]json"):
        store.AgentStore(*folders(tmp_path), "a").begin("hv1", 5)


def test_two_agents_are_one_too_many(tmp_path):
    one, two = (store.AgentStore(*folders(tmp_path), "a") for _ in range(2))
    one.lock()
    with pytest.raises(errors.OperationFailed, match="another agent"):
        two.lock()


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    one = store.AgentStore(*folders(tmp_path), "a")
    one.begin("hv1", 5)
    one.save(KEPT)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        one.save(SavedAgentState())
    monkeypatch.undo()
    assert store.AgentStore(*folders(tmp_path), "a").begin("hv1", 6)[0].saved == KEPT
    assert sorted(os.listdir(tmp_path / "state")) == ["boot.json", "state.json"]


def test_a_full_folder_in_memory_matters_only_where_something_changed(tmp_path, monkeypatch):
    one = store.AgentStore(*folders(tmp_path), "a")
    state, _ = one.begin("hv1", 5)
    one.save_runtime(state)

    def full(path, data, durable=True):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_file, "write", full)
    one.save_runtime(replace(state, seq=state.seq + 1, lease_from_s=4))
    with pytest.raises(OSError, match="No space"):
        one.save_runtime(replace(state, believed=True))


def test_no_link_is_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "x.new").symlink_to(target)
    atomic_file.write(tmp_path / "x", b"new")
    assert target.read_text() == "mine" and (tmp_path / "x").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["target", "x"]


# -- the watchdog ----------------------------------------------------------------------------------


def test_without_a_device_there_is_none(tmp_path):
    assert not watchdog.WatchdogDevice(None, 10).is_usable
    assert not watchdog.WatchdogDevice(str(tmp_path / "none"), 10).is_usable


def test_what_is_no_watchdog_is_not_used(tmp_path, caplog):
    (tmp_path / "file").touch()
    one = watchdog.WatchdogDevice(str(tmp_path / "file"), 10)
    assert one.is_usable
    one.arm()
    assert not one.is_armed and not one.is_usable
    assert "refuses a timeout of 10 s" in caplog.text
    one.feed()
    one.disarm()


class Driver:
    """A device's ioctls."""

    def __init__(self, monkeypatch, can=0x8180, longest=60):
        self.fed, self.can, self.longest, self.breaks = 0, can, longest, False
        self.timeout_s = None
        monkeypatch.setattr(watchdog.fcntl, "ioctl", self.ioctl)

    def ioctl(self, handle, number, data):
        if number == watchdog._SUPPORT:
            data[:] = watchdog._INFO.pack(self.can, 1, b"test")
        elif number == watchdog._SET_TIMEOUT:
            wanted = int.from_bytes(data, "little")
            self.timeout_s = min(wanted, self.longest)
            data[:] = self.timeout_s.to_bytes(4, "little")
        elif self.breaks:
            raise OSError(5, "Input/output error")
        else:
            self.fed += 1


@pytest.fixture
def device(tmp_path):
    path = tmp_path / "watchdog"
    path.touch()
    return path


def test_it_is_armed_fed_and_put_at_rest(device, monkeypatch):
    driver = Driver(monkeypatch)
    one = watchdog.WatchdogDevice(str(device), 10)
    one.arm()
    assert one.is_armed and one.timeout_s == 10 and driver.fed == 1
    one.feed()
    assert driver.fed == 2 and device.read_bytes() == b""
    one.disarm()
    assert not one.is_armed and device.read_bytes() == b"V"


def test_the_time_that_the_device_took_is_the_one_that_is_told(device, monkeypatch):
    Driver(monkeypatch, longest=7)
    one = watchdog.WatchdogDevice(str(device), 10)
    one.arm()
    assert one.timeout_s == 7


@pytest.mark.parametrize("can", [0x8080, 0x8100])
def test_one_that_is_no_proof_is_put_at_rest_and_not_used(device, monkeypatch, can):
    Driver(monkeypatch, can)
    one = watchdog.WatchdogDevice(str(device), 10)
    one.arm()
    assert not one.is_armed and not one.is_usable and device.read_bytes() == b"V"


def test_one_that_breaks_is_told_and_stays_armed(device, monkeypatch):
    driver = Driver(monkeypatch)
    one = watchdog.WatchdogDevice(str(device), 10)
    one.arm()
    driver.breaks = True
    one.feed()
    assert not one.is_armed and device.read_bytes() == b""


def test_one_that_is_armed_is_opened_once(device, monkeypatch):
    driver = Driver(monkeypatch)
    one = watchdog.WatchdogDevice(str(device), 10)
    one.arm()
    handle = one._handle
    one.arm()
    assert (one._handle, driver.fed) == (handle, 1)
    one.disarm()


def test_one_that_cannot_be_opened_or_put_at_rest_is_named(device, monkeypatch, caplog):
    Driver(monkeypatch)
    folder = watchdog.WatchdogDevice(str(device.parent), 10)
    folder.arm()
    assert not folder.is_armed and f"cannot arm the watchdog {device.parent}: " in caplog.text
    one = watchdog.WatchdogDevice(str(device), 10)
    one.arm()
    os.close(one._handle)
    one.disarm()
    assert not one.is_armed and f"cannot disarm the watchdog {device}: " in caplog.text


@pytest.mark.parametrize("name, kept", [("watchdog", "watchdog0"), ("watchdog1", "watchdog1")])
@pytest.mark.parametrize("stuck", ["0", "1"])
def test_one_that_can_never_be_put_at_rest_is_not_opened(
    tmp_path, monkeypatch, caplog, name, kept, stuck
):
    (tmp_path / "class" / kept).mkdir(parents=True)
    (tmp_path / "class" / kept / "nowayout").write_text(f"{stuck}\n")
    monkeypatch.setattr(watchdog, "_CLASS", str(tmp_path / "class"))
    driver = Driver(monkeypatch)
    (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / name)
    one = watchdog.WatchdogDevice(str(tmp_path / "link"), 10)
    one.arm()
    assert one.is_armed is one.is_usable is (stuck == "0")
    assert driver.fed == (stuck == "0")
    assert ("its module has nowayout=1" in caplog.text) is (stuck == "1")
    one.disarm()


# -- why it ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "jobs, found",
    [
        ("", agent_view.STOP),
        ("12 salt-virt-ha.service stop running", agent_view.STOP),
        ("1 reboot.target start waiting\n2 shutdown.target start waiting", agent_view.REBOOT),
        ("2 shutdown.target start waiting", agent_view.SHUTDOWN),
        ("1 poweroff.target start waiting", agent_view.SHUTDOWN),
        ("1 poweroff.target stop waiting", agent_view.STOP),
        ("rubbish", agent_view.STOP),
    ],
)
def test_why_it_ends_is_what_systemd_is_about(jobs, found):
    assert shutdown_reason.from_jobs(jobs) == found


def test_a_systemd_that_does_not_answer_shuts_nothing_down(tmp_path):
    assert shutdown_reason.detect(("/nonexistent/systemctl",)) == agent_view.STOP
    assert shutdown_reason.detect(("echo", "1 reboot.target start waiting")) == agent_view.REBOOT


def test_a_systemd_that_hangs_holds_up_no_beat_for_long(monkeypatch):
    monkeypatch.setattr(shutdown_reason, "_ASK_S", 0.1)
    said = ("sh", "-c", "echo 1 reboot.target start waiting; exec sleep 60")
    assert shutdown_reason.detect(said) == agent_view.STOP


# -- copies ----------------------------------------------------------------------------------------


def seen(name="web1", active=True, **more):
    return DomainState(name, f"uuid-{name}", active, **more)


@pytest.mark.parametrize(
    "copy, found, state",
    [
        (Instance(1, messages.RUNNING), seen(), messages.RUNNING),
        (Instance(1, messages.RUNNING), seen(active=False), messages.STOPPED),
        (Instance(1, messages.RUNNING), seen(active=False, crashed=True), messages.CRASHED),
        (Instance(1, messages.RUNNING), None, messages.STOPPED),
        (Instance(1, messages.STOPPED), None, messages.STOPPED),
        (Instance(1, messages.STOPPED), seen(), messages.RUNNING),
        (Instance(1, messages.STARTING, busy=True), seen(active=False), messages.STARTING),
        (Instance(1, messages.STARTING, since_s=95), seen(active=False), messages.STARTING),
        (Instance(1, messages.STARTING, since_s=9), seen(active=False), messages.FAILED),
        (Instance(1, messages.STARTING), seen(), messages.RUNNING),
        (Instance(1, messages.INCOMING, since_s=95), None, messages.INCOMING),
        (Instance(1, messages.INCOMING, since_s=9), None, messages.STOPPED),
        (Instance(1, messages.INCOMING), seen(incoming=True), messages.INCOMING),
        (Instance(1, messages.INCOMING), seen(), messages.RUNNING),
        (
            Instance(1, messages.INCOMING, "uuid-web1", since_s=95),
            seen(active=False),
            messages.STOPPED,
        ),
        (Instance(1, messages.RUNNING, since_s=101), seen(active=False), messages.RUNNING),
        (Instance(1, messages.OFF, lease=7), seen(state=PAUSED), messages.OFF),
        (Instance(1, messages.OFF, lease=7, lease_unsure=True), seen(state=PAUSED), messages.OFF),
        (Instance(1, messages.OFF, lease=7), seen(), messages.RUNNING),
        (Instance(1, messages.OFF, lease=7), seen(active=False), messages.OFF),
        (Instance(1, messages.STARTING, since_s=9, lease=7), seen(state=PAUSED), messages.FAILED),
        (Instance(1, messages.STARTING, since_s=9, lease=7), seen(), messages.RUNNING),
    ],
)
def test_what_libvirt_shows_of_a_copy(copy, found, state):
    assert instances.reconcile(copy, found, 100, 100).state == state


def test_a_guest_that_was_renamed_by_hand_is_not_taken_for_gone(tmp_path):
    one = InstanceTable(str(tmp_path / "x"), "a", 0)
    one.put("web1", Instance(1, messages.RUNNING, "uuid-web1"))
    one.update(DomainListing(5, {"other": DomainState("other", "uuid-web1", True)}), ["web1"], 5)
    assert one.statuses(["web1"])["web1"].state == messages.RUNNING


def test_the_name_of_one_that_was_taken_back_may_be_another_guests(tmp_path):
    """web1 is taken back and renamed web2; another web1 is given: it was told to run as long as
    web2 did."""
    one = InstanceTable(str(tmp_path / "x"), "a", 0)
    one.put("web1", Instance(7, messages.RUNNING, "uuid-old"))
    there = {
        "web2": DomainState("web2", "uuid-old", True),
        "web1": DomainState("web1", "uuid-new", False),
    }
    one.update(DomainListing(5, there), [], 5)
    one.update(DomainListing(6, there), ["web1"], 6)
    assert one.statuses(["web1"])["web1"] == messages.GuestStatus(0, messages.OFF)


@pytest.mark.parametrize("fields", [{"busy": True}, {"lease": 3}])
def test_one_that_is_being_started_or_held_is_not_forgotten(tmp_path, fields):
    one = InstanceTable(str(tmp_path / "x"), "a", 0)
    one.put("web1", Instance(7, messages.STARTING, **fields))
    one.update(DomainListing(5), [], 5)
    assert one.get("web1") is not None


def test_copies_outlive_the_agent_and_not_the_host(tmp_path):
    one = InstanceTable(str(tmp_path / "x"), "a", 0)
    assert not one.is_known and one.is_defined("web9")
    one.update(DomainListing(5, {"web1": seen(), "mine": seen("mine")}), ["web1"], 5)
    assert one.is_known and one.is_defined("mine") and not one.is_defined("web9")
    assert one.statuses(["mine"]) == {"mine": messages.GuestStatus(0, messages.RUNNING)}
    again = InstanceTable(str(tmp_path / "x"), "a", 9)
    assert again.is_known and again.statuses(["web1", "mine"]) == {
        "web1": messages.GuestStatus(0, messages.RUNNING)
    }
    assert not InstanceTable(str(tmp_path / "x"), "b", 9).is_known


def test_a_start_of_which_the_end_was_not_seen_is_unclear_for_a_while(tmp_path):
    one = InstanceTable(str(tmp_path / "x"), "a", 0)
    one.put("web1", Instance(1, messages.STARTING, busy=True))
    again = InstanceTable(str(tmp_path / "x"), "a", 50)
    for at_s, state in ((60, messages.STARTING), (111, messages.FAILED)):
        again.update(DomainListing(at_s, {"web1": seen(active=False)}), ["web1"], at_s)
        assert again.statuses(["web1"])["web1"].state == state


# -- what it hears ---------------------------------------------------------------------------------


def test_of_a_peer_the_newest_beat_is_kept():
    box = inbox.AgentInbox(["salt"], Clock(5).monotonic)
    for seq in (1, 3, 2):
        box.on_frame("hv2", "beat", Heartbeat("hv2", 1, seq).to_answer())
    assert box.beats["hv2"].beat.seq == 3
    with pytest.raises(errors.BadAnswer):
        box.on_frame("hv2", "beat", {"host": "hv2", "boot": "x"})


def test_only_masters_define():
    box = inbox.AgentInbox(["salt"], Clock(5).monotonic)
    box.on_frame("hv2", "definition", {"name": "web1", "xml": "<domain/>"})
    box.on_frame("hv2", "journal", {})
    assert box.requests.empty()
    box.on_frame("salt", "definition", {"name": "web1", "xml": "<domain/>"})
    assert not box.requests.empty()


def test_a_registry_with_a_new_guest_waits_until_libvirt_was_looked_at():
    """Who acts by a registry says of each of its guests whether it is here."""
    clock = Clock(5)
    box = inbox.AgentInbox(["salt"], clock.monotonic)
    box.on_frame("salt", "call", LeaderMessage("salt", 3, 1, registry=REGISTRY).to_answer())

    def registry(looked_s, known=()):
        return box.believable(looked_s, known)["salt"].message.registry

    assert registry(None) is None and registry(4.9) is None and registry(5) is None
    assert registry(5.1) == REGISTRY
    assert registry(None, ["web1"]) == REGISTRY


def test_questions_are_bounded():
    box = inbox.AgentInbox(["salt"], Clock(5).monotonic)
    with pytest.raises(errors.OperationFailed, match="too many"):
        for _ in range(box.MAX_REQUESTS + 1):
            box.on_frame("hv2", "incoming", {})


# -- pools -----------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder that looks mounted."""
    folder = tmp_path / "pool"
    folder.mkdir()
    mounted(monkeypatch, ("/", "ext4"), (folder, "nfs4"))
    return str(folder)


def mounted(monkeypatch, *where):
    found = [mounts.Mount("0:7", "/", str(place), kind, "x") for place, kind in where]
    monkeypatch.setattr(mounts, "read", lambda: found)


def beat_of(host):
    return Heartbeat(host, 1, 1).to_answer()


def test_a_beat_is_written_and_those_of_others_are_read(shared):
    """What is none may be nested so deep that the agent cannot read it once it is handed on."""
    with pool_heartbeat.open_folder(shared) as home:
        for name in ("hv1", "hv2"):
            pool_heartbeat.write(home, name, json.dumps(beat_of(name)).encode())
        for name, text in (("hv3", b"{"), ("hv6", b"[" * 900 + b"]" * 900), ("hv7", b'{"b": 2}')):
            pool_heartbeat.write(home, name, text)
        os.mkfifo(f"{shared}/.salt-virt-ha/hv4.beat")
        os.symlink("/etc/passwd", f"{shared}/.salt-virt-ha/hv5.beat")
        assert pool_heartbeat.read_peers(home, "hv1") == {"hv2": beat_of("hv2")}


def refusal(folder):
    with pytest.raises(errors.OperationFailed) as found, pool_heartbeat.open_folder(str(folder)):
        pass
    return found.value.text


@pytest.mark.parametrize(
    ("kind", "says"),
    [(None, "nothing is mounted there"), ("overlay", "is on overlay at"), ("tmpfs", "tmpfs"),
     ("xfs", "which no other host can write to")],
)  # fmt: skip
def test_where_no_other_host_could_read_it_nothing_is_written(tmp_path, monkeypatch, kind, says):
    """Also below another disk of the host itself: it was taken for mounted, and its storage for
    well whatever became of the shared one."""
    pool = tmp_path / "srv/pool"
    pool.mkdir(parents=True)
    mounted(monkeypatch, ("/", "ext4"), *([(tmp_path / "srv", kind)] if kind else []))
    assert says in refusal(pool)
    assert os.listdir(pool) == []


def test_a_link_to_a_pool_is_as_safe_as_what_it_names(shared, tmp_path, monkeypatch):
    link, own = tmp_path / "link", tmp_path / "own"
    link.symlink_to(shared)
    with pool_heartbeat.open_folder(str(link)):
        assert os.listdir(shared) == [".salt-virt-ha"]
    own.mkdir()
    link.unlink()
    link.symlink_to(own)
    assert "nothing is mounted" in refusal(link)
    # what is put in the place of a folder meanwhile is not followed
    mounted(monkeypatch, ("/", "ext4"), (link, "nfs4"))
    monkeypatch.setattr(os.path, "realpath", str)
    with pytest.raises(OSError, match="link"), pool_heartbeat.open_folder(str(link)):
        pass
    assert os.listdir(own) == []


def test_what_becomes_of_the_folder_meanwhile_leads_root_nowhere_else(shared, tmp_path):
    """Whoever may write to the pool put a link in the place of the folder of beats."""
    with pool_heartbeat.open_folder(shared) as home:
        os.rename(f"{shared}/.salt-virt-ha", f"{shared}/away")
        os.symlink(tmp_path, f"{shared}/.salt-virt-ha")
        pool_heartbeat.write(home, "hv1", b"{}")
    assert os.listdir(f"{shared}/away") == ["hv1.beat"] and os.listdir(tmp_path) == ["pool"]


def test_a_folder_of_beats_that_others_can_write_to_is_not_used(shared):
    with pool_heartbeat.open_folder(shared):
        pass
    os.chmod(f"{shared}/.salt-virt-ha", 0o777)
    assert "others can write" in refusal(shared)
    os.rmdir(f"{shared}/.salt-virt-ha")
    os.symlink("/tmp", f"{shared}/.salt-virt-ha")
    assert "link" in refusal(shared)


SERVE = """
import json, sys
for line in sys.stdin.buffer:
    beat = json.loads(line)
    other = {**beat, "host": "hv2"}
    print(json.dumps({"beats": {"hv2": other, "hv3": other, "hv9": {}}}), flush=True)
"""


def test_a_pool_tells_when_it_was_written_and_what_it_read():
    clock = Clock(7)
    one = pool_heartbeat.PoolHeartbeat(
        "/x", ["/usr/bin/python3", "-c", SERVE], ["hv1", "hv2"], clock.monotonic
    )
    one.write(json.dumps(Heartbeat("hv1", 1, 1).to_answer()).encode())
    until(lambda: one.beats, "the beats")
    assert list(one.beats) == ["hv2"] and one.silent_s() == 0
    clock.sleep(3)
    assert one.silent_s() == 3
    one.end()


@pytest.mark.parametrize(("does", "says"), [
    ("", "the worker process has ended"), ("echo no JSON", "Expecting value"),
])  # fmt: skip
def test_a_process_that_ends_or_says_nonsense_is_begun_again(
    tmp_path, monkeypatch, caplog, does, says
):
    caplog.set_level("INFO")
    monkeypatch.setattr(pool_heartbeat, "_RETRY_S", 0)
    first = f"if mkdir {tmp_path}/once 2>/dev/null; then read beat; {does or ':'}; exit; fi"
    argv = ["/bin/sh", "-c", f'{first}; exec /usr/bin/python3 -c "$0"', SERVE]
    one = pool_heartbeat.PoolHeartbeat("/x", argv, ["hv1", "hv2"], Clock(7).monotonic)
    one.write(json.dumps(beat_of("hv1")).encode())
    until(lambda: f"pool /x: {says}" in caplog.text, "what is wrong is said")
    assert one.wrote_s is None and one.beats == {}
    one.write(json.dumps(beat_of("hv1")).encode())
    until(lambda: one.beats, "the beats")
    assert one.wrote_s == 7
    one.end()


def test_storage_that_hangs_keeps_nobody_waiting():
    clock = Clock(7)
    one = pool_heartbeat.PoolHeartbeat("/x", ["sleep", "60"], ["hv1"], clock.monotonic)
    for seq in range(5):
        one.write(json.dumps(Heartbeat("hv1", 1, seq).to_answer()).encode())
        clock.sleep(1)
    assert one.silent_s() == 5 and one.beats == {}
    until(lambda: one._worker._process, "its process")
    process = one._worker._process
    one.end()
    assert process.wait(60) == -9


def a_pool(argv):
    return pool_heartbeat.PoolHeartbeat("/x", argv, ["hv1"], Clock(7).monotonic)


def a_shelf(argv):
    one = shared_definitions.SharedDefinitions("/x", argv, Clock(7).monotonic)
    one.update({"web1": shelved()}, ["web1"], lambda name: True)
    return one


@pytest.mark.parametrize("begin", [a_pool, a_shelf])
def test_one_that_ends_before_its_process_began_leaves_none(begin, monkeypatch):
    began, goes = threading.Event(), threading.Event()
    popen, found = subprocess.Popen, []

    def late(*words, **more):
        began.set()
        goes.wait(60)
        found.append(popen(*words, **more))
        return found[0]

    monkeypatch.setattr(subprocess, "Popen", late)
    one = begin(["sleep", "60"])
    assert began.wait(60)
    one.end()
    goes.set()
    until(lambda: found and found[0].poll() is not None, "the end of its process")


def served(part, shared, *lines):
    """What the process of a pool answers to each line."""
    found = io.BytesIO()
    asked = io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    part.serve(shared, "hv1", asked, found)
    return [json.loads(line) for line in found.getvalue().splitlines()]


def test_the_process_of_a_pool_writes_each_beat_and_tells_those_of_others(shared):
    with pool_heartbeat.open_folder(shared) as home:
        pool_heartbeat.write(home, "hv2", json.dumps(beat_of("hv2")).encode())
    assert (
        served(pool_heartbeat, shared, {"a": 1}, {"a": 2})
        == [{"beats": {"hv2": beat_of("hv2")}}] * 2
    )
    with open(f"{shared}/.salt-virt-ha/hv1.beat") as file:
        assert json.load(file) == {"a": 2}


def test_the_process_of_a_pool_says_what_is_wrong_and_goes_on(shared):
    with pool_heartbeat.open_folder(shared):
        os.chmod(f"{shared}/.salt-virt-ha", 0o777)
    [told] = served(pool_heartbeat, shared, {"a": 1})
    assert "others can write to it" in told["trouble"]
    os.rename(shared, f"{shared}-away")
    assert served(pool_heartbeat, shared, {"a": 1}, {"a": 2}) == [
        {"trouble": f"No such file or directory ({shared})"}
    ] * 2  # fmt: skip


def test_the_process_of_definitions_keeps_each_and_says_what_is_wrong(shared):
    told = {"name": "web1", "xml": "<domain/>"}
    assert served(shared_definitions, shared, told, {"name": "web2", "xml": "<domain/>"}) == [
        {},
        {},
    ]
    home = f"{shared}/.salt-virt-ha/definitions"
    assert sorted(os.listdir(home)) == ["web1.xml", "web2.xml"]
    assert served(shared_definitions, shared, {**told, "xml": None}) == [{}]
    assert os.listdir(home) == ["web2.xml"]
    os.chmod(home, 0o755)
    assert "others can read it" in served(shared_definitions, shared, told)[0]["trouble"]


def test_the_program_of_a_pool_is_this_one():
    assert pool_heartbeat.worker_argv("/x", "hv1")[-3:] == ["pool", "/x", "hv1"]


# -- definitions beside the disks ------------------------------------------------------------------


def shelved(name="web1", more=""):
    return definition(name, XML.format(name=name).replace("<os>", f"{more}<os>"))


def put(shared, name="web1", xml="<domain/>", host="hv1"):
    shared_definitions.put(shared, host, name, xml)
    return os.path.join(shared, ".salt-virt-ha/definitions")


def written(path):
    """What changes when a file is written or replaced, and not when it is read."""
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def test_a_definition_is_put_beside_the_disks_and_only_root_may_read_it(shared):
    home = put(shared, "../web 1", "<domain>geheim</domain>")
    [file] = os.listdir(home)
    path = os.path.join(home, file)
    assert file == "..%2Fweb%201.xml" and os.stat(path).st_mode & 0o777 == 0o600
    assert os.lstat(home).st_mode & 0o777 == 0o700
    before = written(path)
    put(shared, "../web 1", "<domain>geheim</domain>", host="hv2")
    assert written(path) == before, "what is there is not written again"
    put(shared, "../web 1", "<domain/>", host="hv2")
    with open(path) as file:
        assert file.read() == "<domain/>"
    assert len(os.listdir(home)) == 1
    put(shared, "../web 1", None)
    put(shared, "../web 1", None)
    assert os.listdir(home) == []


def test_a_folder_of_definitions_that_others_can_read_is_not_used(shared):
    home = put(shared)
    os.chmod(home, 0o750)
    with pytest.raises(errors.OperationFailed, match="others can read"):
        put(shared)
    os.chmod(home, 0o700)
    for kind in (os.symlink, os.link):
        os.unlink(f"{home}/web1.xml")
        with open(f"{shared}/foreign", "w") as file:
            file.write("mine")
        kind(f"{shared}/foreign", f"{home}/web1.xml")
        put(shared)
        with open(f"{shared}/foreign") as file:
            assert file.read() == "mine"
        os.unlink(f"{shared}/foreign")
        assert os.lstat(f"{home}/web1.xml").st_nlink == 1


def test_a_definition_is_there_whole_or_not_at_all(shared, monkeypatch):
    home = put(shared)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        put(shared, xml="<domain>other</domain>")
    assert os.listdir(home) == ["web1.xml"]
    with open(f"{home}/web1.xml") as file:
        assert file.read() == "<domain/>"


TAKES = """
import json, sys
for line in sys.stdin.buffer:
    asked = json.loads(line)
    with open(sys.argv[1], "a") as file:
        file.write(f"{asked['name']} {len(asked['xml'] or '')}\\n")
    print(json.dumps({"trouble": "full"} if asked["name"] == "bad" else {}), flush=True)
"""


@pytest.fixture
def one_shelf(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_definitions, "_RETRY_S", 0.1)
    clock, log = Clock(7), tmp_path / "log"
    log.touch()
    one = shared_definitions.SharedDefinitions(
        "/x", ["/usr/bin/python3", "-c", TAKES, str(log)], clock.monotonic
    )
    one.clock, one.log = clock, lambda: log.read_text().splitlines()
    yield one
    one.end()


def test_definitions_of_ones_own_guests_are_kept_when_they_change(one_shelf):
    def keep(own, guests, defined=True):
        one_shelf.update({one.name: one for one in own}, guests, lambda name: defined)

    first, other = shelved(), shelved(more="<title>t</title>")
    sizes = [len(first.xml), len(other.xml)]
    for _ in range(3):
        keep([first], {"web1"})
    until(lambda: one_shelf.log() == [f"web1 {sizes[0]}"], "the first")
    keep([other], {"web1"})
    until(lambda: one_shelf.log()[1:] == [f"web1 {sizes[1]}"], "the second")
    until(lambda: not one_shelf._queue, "it is done with that")
    one_shelf.clock.sleep(shared_definitions.REWRITE_S)
    keep([other], {"web1"})
    until(lambda: len(one_shelf.log()) == 3, "once more, after a while")
    keep([], {"web1"})  # it has moved away: another host's to keep
    keep([], {})
    keep([], {}, defined=False)
    assert not one_shelf._queue
    keep([first], {"web1"})
    keep([], {})  # no longer of high availability, and there still
    until(lambda: len(one_shelf.log()) == 4, "the one that came back")
    keep([], {}, defined=False)
    until(lambda: one_shelf.log()[4:] == ["web1 0"], "it goes")


def test_what_cannot_be_kept_is_tried_again(one_shelf):
    one_shelf.update({"bad": shelved("bad")}, {"bad"}, lambda name: True)
    until(lambda: len(one_shelf.log()) > 1, "another try")


# -- libvirt ---------------------------------------------------------------------------------------

XML = """<domain type='test'><name>{name}</name><memory unit='MiB'>64</memory><vcpu>2</vcpu>
<os><type>hvm</type></os></domain>"""


class Going(Clock):
    """No two answers are the same: what came after is told from what came before."""

    def monotonic(self):
        self.now += 1e-6
        return self.now


@pytest.fixture
def guests(tmp_path, monkeypatch):
    monkeypatch.setattr(departures, "FOLDER", str(tmp_path / "moved"))
    clock = Going(10)
    table = InstanceTable(str(tmp_path / "guests.json"), "a", 10)
    where = LibvirtConfig("test:///default", str(tmp_path / "locks"), 30, 0.05)
    kept = DefinitionCache(str(tmp_path / "definitions"), [])
    one = Guests(where, table, kept, clock.monotonic)
    only_test(one._connected())  # other tests of the process may have left theirs
    one.clock = clock
    one.names = frozenset(["web1", "test"])
    one.begin()
    until(lambda: table.is_known, "a look")
    yield one
    one.end()
    until(lambda: not one._busy, "the end of its threads")


def state(one, name):
    one.clock.sleep(1)
    found = one.instances.statuses([name]).get(name)
    return found.state if found else None


def becomes(one, name, wanted):
    until(lambda: state(one, name) == wanted, f"{name} is {wanted}", 10)


@pytest.fixture
def apart(tmp_path):
    """Guests whose libvirt is not looked at; no other test has one of that URI."""
    node = tmp_path / "node.xml"
    table = InstanceTable(str(tmp_path / "guests.json"), "a", 10)
    where = LibvirtConfig(f"test://{node}", str(tmp_path / "locks"), 30, 0.05)
    one = Guests(
        where, table, DefinitionCache(str(tmp_path / "definitions"), []), Going(10).monotonic
    )
    one.node = node
    yield one
    one.end()


NODE = "<node><cpu><mhz>1</mhz><model>x</model><active>4</active><nodes>1</nodes></cpu></node>"


def test_a_libvirt_that_is_gone_is_looked_for_until_it_is_there(apart, caplog):
    caplog.set_level("INFO")
    apart.begin()
    until(lambda: "libvirt: " in caplog.text, "the line")
    with pytest.raises(errors.ConnectionFailed, match="libvirt does not respond"):
        apart.domain("web1")
    assert apart._runs("web1"), "in doubt it does"
    apart.node.write_text(NODE)
    until(lambda: apart.instances.is_known, "a look")
    until(lambda: "libvirt responds" in caplog.text, "the line")
    assert apart.domain("web1") is None and not apart._runs("web1")


def test_a_fault_of_its_own_ends_one_look_and_not_the_next(apart, caplog, monkeypatch):
    apart.node.write_text(NODE)
    with monkeypatch.context() as patch:
        patch.setattr(apart.health, "update", lambda *_: 1 / 0)
        apart.begin()
        until(lambda: "polling libvirt failed: division by zero" in caplog.text, "the line")
        assert apart._sent_s == 0
    until(lambda: apart._sent_s, "a whole look")


def test_a_definition_is_told_as_soon_as_libvirt_has_saved_it(apart, tmp_path, monkeypatch):
    """The guest has got a snapshot: if its host died before that is known, the guest would be
    started by the definition of before, and write below it."""
    apart.node.write_text(NODE)
    apart.config = replace(apart.config, definitions_folder=str(tmp_path))
    apart.names, told = frozenset(["web1", "web2"]), []
    apart.on_definition = told.append
    monkeypatch.setattr(agent_guests, "_DEFINITIONS_EVERY_S", 1e9)
    apart._sent_s = 1.0
    conn = libvirt.open(apart.config.uri)
    for name in ("web1", "web2"):
        conn.defineXML(XML.format(name=name))
        (tmp_path / f"{name}.xml").write_text("saved")
    for changed, names in (("", ["web1", "web2"]), ("", []), ("web2", ["web2"]), ("", [])):
        if changed:
            xml = conn.lookupByName(changed).XMLDesc()
            conn.defineXML(xml.replace("</name>", "</name><description>newer</description>"))
            (tmp_path / f"{changed}.xml").write_text("saved anew")
        told.clear()
        apart._poll(conn)
        assert sorted(one.name for one in told) == names
    conn.close()


def test_a_definition_is_told_again_until_masters_have_it(apart, monkeypatch):
    """One that was taken back and given again is known to no master; what a person has moved here
    was refused as long as the registry had the guest elsewhere."""
    apart.node.write_text(NODE)
    told = []
    apart.on_definition, apart.names = told.append, frozenset(["web1"])
    monkeypatch.setattr(agent_guests, "_DEFINITIONS_EVERY_S", 0)
    conn = libvirt.open(apart.config.uri)
    conn.defineXML(XML.format(name="web1"))

    def looks(names=("web1",), own=()):
        apart.names, apart.owned = frozenset(names), frozenset(own)
        told.clear()
        apart._poll(conn)
        return [one.name for one in told]

    assert (looks(), looks()) == (["web1"], [])
    assert (looks(names=()), looks(), looks()) == ([], ["web1"], [])
    assert looks(own=["web1"]) == looks(own=["web1"]) == ["web1"]
    apart.definition_cache.put(definition("web1", XML.format(name="web1")))
    assert looks(own=["web1"]) == ["web1"]  # what masters have is an older one
    apart.definition_cache.put(told[0])
    assert looks(own=["web1"]) == []
    conn.close()


def test_what_libvirt_cannot_say_is_no_word_that_a_guest_is_not_there(apart):
    apart.node.write_text(NODE)
    apart._conn = libvirt.open(apart.config.uri)
    apart._conn.close()
    with pytest.raises(libvirt.libvirtError):
        apart.domain("web1")
    assert apart._runs("web1")


def test_a_definition_that_cannot_be_read_keeps_no_other_from_being_told(apart, caplog):
    apart.node.write_text(NODE)
    conn, told = libvirt.open(apart.config.uri), []
    conn.defineXML(XML.format(name="web1"))
    apart.on_definition = told.append
    apart._send_definitions(conn, ["gone", "web1"])
    assert [one.name for one in told] == ["web1"]
    assert "the definition of gone cannot be read: " in caplog.text
    conn.close()


def test_who_is_kept_is_told_to_who_would_start_it_by_another_way(tmp_path):
    path = str(tmp_path / "state.json")
    assert managed_guests.describe("web1", path) == ""
    new = Registry(2, 2, guests={"web2": HaGuestRecord("new"), "web3": HaGuestRecord("ignored")})
    old = Registry(1, 1, guests={"web1": HaGuestRecord("placed", host="b")})
    store.AgentStore(str(tmp_path), str(tmp_path / "run"), "1").save(
        SavedAgentState(pending=new, registry=old)
    )
    assert managed_guests.describe("web1", path).startswith(
        "web1 is managed by high availability on b ("
    )
    assert managed_guests.describe("web2", path).startswith(
        "web2 is managed by high availability ("
    )
    assert [managed_guests.describe(name, path) for name in ("web3", "web4")] == ["", ""]
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(errors.BadAnswer, match="damaged"):
        managed_guests.describe("web4", path)


def test_for_which_guests_a_host_feeds_its_watchdog(tmp_path):
    path = str(tmp_path / "state.json")
    assert managed_guests.assigned("a", path) == []
    guests = {
        "web1": HaGuestRecord("placed", host="a"),
        "web2": HaGuestRecord("placed", host="b", target="a"),
        "web3": HaGuestRecord("recovering", locations=(GuestLocation("a", 1),)),
        "web4": HaGuestRecord("placed", host="b"),
    }
    keep = store.AgentStore(str(tmp_path), str(tmp_path / "run"), "1").save
    keep(SavedAgentState(registry=Registry(1, 1, guests=guests)))
    assert managed_guests.assigned("a", path) == ["web1", "web2", "web3"]
    assert managed_guests.assigned("c", path) == []
    off = Registry(2, 2, armed=False, guests=guests)
    keep(SavedAgentState(pending=off, registry=off))
    assert managed_guests.assigned("a", path) == []


def test_a_guest_that_runs_is_seen_and_adopted(guests):
    becomes(guests, "test", messages.RUNNING)
    guests.adopt("test", 4)
    assert guests.instances.statuses(["test"])["test"].epoch == 4


def test_a_guest_that_it_keeps_does_not_start_with_its_host_whoever_said_so(guests):
    """The host may come back while the guest runs on another one."""
    doms = [guests.domain("test"), guests._conn.defineXML(XML.format(name="web9"))]
    for dom in doms:
        dom.setAutostart(1)
    guests.managed = frozenset(["test", "web1"])
    until(lambda: not doms[0].autostart(), "it does not", 10)
    assert doms[1].autostart(), "another's is left as it is"
    doms[1].undefine()


def test_a_guest_is_started_by_the_kept_definition_killed_and_dropped(guests):
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.start("web1", 3)
    becomes(guests, "web1", messages.RUNNING)
    assert guests.instances.get("web1").epoch == 3
    guests.kill("web1")
    becomes(guests, "web1", messages.STOPPED)
    guests.drop("web1")
    becomes(guests, "web1", None)
    assert "by high availability" in departures.departure_reason("web1")
    assert guests.domain("web1") is None


def test_a_guest_without_a_definition_fails(guests):
    guests.start("web1", 3)
    becomes(guests, "web1", messages.FAILED)


@pytest.fixture
def short_lock_wait(monkeypatch):
    monkeypatch.setattr("saltvirt.ha.agent.guests._LOCK_WAIT_S", 0.2)


@pytest.mark.usefixtures("short_lock_wait")
def test_what_is_done_with_an_old_definition_is_done_after_another_verb(guests, caplog):
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    assert list(guests.definition_cache.names) == ["web1"]
    guests._conn.defineXML(XML.format(name="web1"))
    with guest_lock.acquire(guests.config.locks, "virt.update", "web1"):
        guests.drop("web1")
        until(lambda: "cannot drop web1" in caplog.text, "the line", 30)
        assert guests.domain("web1") is not None
    guests.drop("web1")
    until(lambda: guests.domain("web1") is None, "it goes", 10)


@pytest.mark.usefixtures("short_lock_wait")
def test_a_guest_is_not_started_by_a_definition_that_was_to_go(guests, caplog):
    """It could not be dropped: another verb was at work with it, or libvirt did not answer."""
    newer = XML.format(name="web1").replace("<name>", "<description>newer</description><name>")
    guests.definition_cache.put(definition("web1", newer))
    guests._conn.defineXML(XML.format(name="web1"))
    with guest_lock.acquire(guests.config.locks, "virt.update", "web1"):
        guests.drop("web1")
        until(lambda: "cannot drop web1" in caplog.text, "the line", 30)
    guests.start("web1", 3)
    becomes(guests, "web1", messages.RUNNING)
    assert "<description>newer</description>" in guests.domain("web1").XMLDesc()
    guests.definition_cache.put(definition("test", XML.format(name="test")))
    guests.drop("test")  # it runs: what it has is no definition of before
    until(lambda: "test" not in guests._obsolete, "a look")


def test_a_guest_that_is_being_started_is_not_started_twice(guests):
    gate = threading.Event()
    guests.run_in_thread("start", "web1", lambda name: gate.wait(120))
    guests.start("web1", 4)
    copy = guests.instances.get("web1")
    assert (copy.state, copy.epoch, copy.busy) == (messages.STARTING, 4, False)
    gate.set()


def test_a_guest_that_runs_is_not_dropped_and_one_that_shuts_down_is(guests, caplog):
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.start("web1", 3)
    becomes(guests, "web1", messages.RUNNING)
    guests.drop("web1")
    until(lambda: "cannot drop web1: the guest is running" in caplog.text, "the line")
    assert guests.instances.get("web1") and guests.domain("web1").isActive()
    guests.shut_down("web1")
    becomes(guests, "web1", messages.STOPPED)
    dom = guests.domain("web1")
    agent_guests._undefine(dom)
    with pytest.raises(libvirt.libvirtError):
        agent_guests._undefine(dom)


def test_a_guest_that_does_not_listen_is_waited_for_and_asked_again(guests, monkeypatch):
    """The test driver's all listen."""
    monkeypatch.setattr(agent_guests, "SHUTDOWN_RETRY_S", 0.1)
    pressed = []
    monkeypatch.setattr(libvirt.virDomain, "shutdown", lambda dom: pressed.append(dom.name()))
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.start("web1", 3)
    becomes(guests, "web1", messages.RUNNING)
    for times in (1, 2):
        guests.shut_down("web1")
        until(lambda times=times: len(pressed) == times, "it is asked")
        until(lambda: not guests._busy, "its end")
    assert guests.domain("web1").isActive()
    guests.clock.sleep(31)
    guests.shut_down("web1")
    becomes(guests, "web1", messages.STOPPED)
    guests.domain("web1").undefine()  # of the one libvirt that other tests have, too


def test_of_a_guest_that_is_given_back_nothing_is_kept():
    """It comes again one day, and is as well as any."""
    health, seen = Health(None, lambda: 1000, 60), DomainState("web1", "u", True, number=7)
    there = {"web1": GuestStatus(1, messages.STOPPED)}
    health.update({"web1": seen}, ["web1"])
    health.on_start_failed("web1", ValueError("no memory"))
    assert health.annotate(there)["web1"].detail == "the start failed: no memory"
    health.update({"web1": seen}, [])
    assert health.annotate(there) == there


def test_an_agent_in_a_guest_is_heard_by_its_answer_alone(guests, monkeypatch):
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.start("web1", 3)
    becomes(guests, "web1", messages.RUNNING)
    health, number = guests.health, guests.domain("web1").ID()
    case = lambda: health._cases["web1"]  # noqa: E731
    until(lambda: "web1" in health._cases and case().number == number, "a look")
    monkeypatch.setattr(health, "update", lambda *_: None)  # it has no agent that is to be asked
    now_s = guests.clock.monotonic()
    until(lambda: guests.instances.observed_s > now_s, "the last look is over")
    for what in (health._ping, health._disks):
        what("gone")
    assert "gone" not in health._cases

    def says(code):
        def time_(_dom):
            exc = libvirt.libvirtError("x")
            exc.err = (code, 0, "x", 2, None, None, None, 0, 0)
            raise exc

        monkeypatch.setattr(libvirt.virDomain, "getTime", time_)
        health._change("web1", heard_s=None, missed=0)
        health._ping("web1")
        return case().heard_s is not None, case().missed

    assert says(libvirt.VIR_ERR_AGENT_UNRESPONSIVE) == (False, 1)
    assert says(libvirt.VIR_ERR_NO_SUPPORT) == (False, 0)
    assert says(libvirt.VIR_ERR_INTERNAL_ERROR) == (True, 0), "it answers that it cannot"
    health._change("web1", number=number + 1)
    assert says(libvirt.VIR_ERR_INTERNAL_ERROR) == (False, 0), "that was another start's"
    end(guests, "web1")
    guests.domain("web1").undefine()


def test_a_guest_whose_lock_is_taken_fails_and_is_left_alone(guests, monkeypatch):
    from saltvirt.ha.agent import guests as module

    monkeypatch.setattr(module, "_LOCK_WAIT_S", 0)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    with module.guest_lock.acquire(guests.config.locks, "a copy", "web1"):
        guests.start("web1", 3)
        becomes(guests, "web1", messages.FAILED)
    assert guests.domain("web1") is None


LOCKED = """internal error: process exited: qemu-system-x86_64: Failed to get "write" lock
Is another process using the image [/srv/ha/web1.raw]?"""


def locked(monkeypatch, times, words=LOCKED):
    """Starts fail for that many times; how many there were, one by one."""
    true, tried = libvirt.virDomain.create, []

    def create(dom):
        tried.append(dom.name())
        if len(tried) <= times:
            raise libvirt.libvirtError(words)
        return true(dom)

    monkeypatch.setattr(libvirt.virDomain, "create", create)
    monkeypatch.setattr(agent_guests, "_DISK_RETRY_S", 0.01)
    return tried


def test_a_start_waits_for_the_disks_lock_of_a_dead_host(guests, monkeypatch):
    """Found in a lab: GlusterFS keeps the locks of a host that was cut off, and then fenced."""
    tried = locked(monkeypatch, 3)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.start("web1", 4)
    until(lambda: len(tried) == 4, "tries, for which it has so long by its clock")
    becomes(guests, "web1", messages.RUNNING)
    assert len(tried) == 4
    guests.kill("web1")
    becomes(guests, "web1", messages.STOPPED)


def test_a_start_that_fails_for_another_reason_is_told_at_once(guests, monkeypatch):
    tried = locked(monkeypatch, 99, "internal error: no memory")
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.start("web1", 4)
    becomes(guests, "web1", messages.FAILED)
    assert len(tried) == 1


@pytest.mark.parametrize("stopped", ["kill", "shut_down", "release"])
def test_a_start_that_waits_for_a_lock_ends_when_the_guest_is_stopped(guests, monkeypatch, stopped):
    monkeypatch.setattr(guests.clock, "sleep", lambda for_s: None)
    tried = locked(monkeypatch, 10**6)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.start("web1", 4)
    until(lambda: len(tried) > 2, "tries")
    getattr(guests, stopped)("web1")
    until(lambda: guests.instances.get("web1").state == messages.FAILED, "it failed", 10)


def test_a_start_does_not_wait_for_a_lock_for_ever(guests, monkeypatch):
    tried = locked(monkeypatch, 10**6)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.start("web1", 4)
    until(lambda: len(tried) > 2, "tries")
    guests.clock.sleep(101)
    becomes(guests, "web1", messages.FAILED)


def holding(monkeypatch, times=0):
    """libvirt's test driver starts none that is held: one that runs is suspended, and nobody sees
    it in between. As locked()."""
    tried, guard = [], threading.RLock()
    stats = libvirt.virConnect.getAllDomainStats

    def seen(conn, *words):
        with guard:
            return stats(conn, *words)

    monkeypatch.setattr(libvirt.virConnect, "getAllDomainStats", seen)

    def create(dom, flags):
        assert flags == libvirt.VIR_DOMAIN_START_PAUSED
        tried.append(dom.name())
        if len(tried) <= times:
            raise libvirt.libvirtError(LOCKED)
        with guard:
            dom.create()
            dom.suspend()

    monkeypatch.setattr(libvirt.virDomain, "createWithFlags", create)
    monkeypatch.setattr(agent_guests, "_LEASE_RETRY_S", 0.01)
    return tried


def asked_until_got(one, version):
    """It is asked for at each beat that does not tell it."""

    def got():
        if one.instances.leases() == {"web1": version}:
            return True
        one.lease("web1", version)
        return False

    until(got, "the lease", 10)


def end(one, name):
    """It is off again."""
    one.kill(name)
    until(lambda: not one.domain(name).isActive(), "its end", 10)


def test_a_lease_is_asked_for_until_it_is_got_and_the_guest_goes_on_by_it(guests, monkeypatch):
    tried = holding(monkeypatch, 2)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    asked_until_got(guests, 7)
    assert len(tried) == 3
    assert state(guests, "web1") == messages.OFF
    asked_until_got(guests, 8)
    number = guests.domain("web1").ID()
    guests.start("web1", 4)
    becomes(guests, "web1", messages.RUNNING)
    assert guests.instances.leases() == {}
    assert (guests.domain("web1").ID(), guests.domain("web1").state()[0]) == (number, 1)
    assert len(tried) == 3
    end(guests, "web1")


def test_a_lease_that_was_not_got_is_told_by_nobody(guests, monkeypatch):
    tried = holding(monkeypatch, 10**6)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.lease("web1", 7)
    until(lambda: tried, "a try")
    until(lambda: not guests.instances.get("web1").busy, "its end")
    assert guests.instances.leases() == {}
    becomes(guests, "web1", messages.OFF)


def test_a_lease_that_cannot_be_asked_for_is_named(guests, monkeypatch, caplog):
    holding(monkeypatch)

    def fails(_dom, _flags):
        raise libvirt.libvirtError("internal error: no memory")

    monkeypatch.setattr(libvirt.virDomain, "createWithFlags", fails)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.lease("web1", 7)
    until(lambda: "cannot lease web1: internal error: no memory" in caplog.text, "the line")
    until(lambda: not guests._busy, "its end")
    copy = guests.instances.get("web1")
    assert (copy.state, copy.busy, guests.instances.leases()) == (messages.OFF, False, {})


def test_a_guest_whose_lease_nobody_saw_is_not_gone_on_with(guests, monkeypatch):
    """It may be held since before another host had it."""
    holding(monkeypatch)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    dom = guests._ensure_defined("web1")
    guests.instances.put("web1", Instance(0, messages.OFF, busy=True, lease=7, lease_unsure=True))
    dom.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    number = dom.ID()
    guests.instances.change("web1", guests.clock.monotonic(), busy=False)
    guests.start("web1", 4)
    becomes(guests, "web1", messages.RUNNING)
    dom = guests.domain("web1")
    assert dom.ID() != number and dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    end(guests, "web1")


def test_a_lease_that_is_let_go_leaves_nothing(guests, monkeypatch):
    holding(monkeypatch)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    asked_until_got(guests, 7)
    guests.kill("web1")
    until(lambda: guests.instances.leases() == {}, "it is let go", 10)
    assert not guests.domain("web1").isActive()


def test_a_lease_that_nobody_asks_for_any_more_is_let_go_with_the_definition(guests, monkeypatch):
    """The paused QEMU kept the locks of the disks, and every start elsewhere failed."""
    holding(monkeypatch)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    dom = guests._ensure_defined("web1")
    guests.instances.put("web1", Instance(0, messages.OFF, lease=7, lease_unsure=True))
    dom.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    guests.drop("web1")
    until(lambda: guests.domain("web1") is None, "it is gone", 10)


def test_a_start_that_cannot_be_written_down_is_no_start_for_ever(guests, monkeypatch):
    """/run was full once: the guest was "starting" until the agent began anew."""
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    full = OSError(28, "No space left on device")

    def write(*_args, **_more):
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "write", write)
        with pytest.raises(OSError):
            guests.start("web1", 4)
    assert not guests.instances.get("web1").busy
    guests.start("web1", 5)
    becomes(guests, "web1", messages.RUNNING)
    end(guests, "web1")


def test_a_lease_whose_answer_nobody_saw_is_asked_for_again(guests, monkeypatch):
    """The agent died while it was asked for."""
    tried = holding(monkeypatch)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    dom = guests.domain("web1") or guests._ensure_defined("web1")
    guests.instances.put("web1", Instance(0, messages.OFF, busy=True, lease=7, lease_unsure=True))
    dom.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    tried.clear()
    guests.instances.change("web1", guests.clock.monotonic(), busy=False)
    assert state(guests, "web1") == messages.OFF and guests.instances.leases() == {}
    asked_until_got(guests, 7)
    assert tried == ["web1"]
    end(guests, "web1")


def test_what_runs_is_not_ended_for_a_lease(guests, monkeypatch):
    holding(monkeypatch)
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests._ensure_defined("web1").create()
    guests.lease("web1", 7)
    becomes(guests, "web1", messages.RUNNING)
    guests.lease("web1", 7)
    assert guests.instances.leases() == {} and guests.domain("web1").isActive()
    end(guests, "web1")


def test_a_guest_is_asked_to_shut_down_and_then_stopped(guests, monkeypatch):
    becomes(guests, "test", messages.RUNNING)
    pressed = []
    monkeypatch.setattr(guests, "_request_shutdown", pressed.append)
    guests.shut_down("test")
    until(lambda: pressed, "a press")
    guests.clock.sleep(31)
    guests.shut_down("test")
    becomes(guests, "test", messages.STOPPED)


def test_the_same_is_not_begun_twice(guests):
    gate, count = threading.Event(), []

    def work(name):
        count.append(name)
        gate.wait(120)

    assert guests.run_in_thread("x", "web1", work) and not guests.run_in_thread("x", "web1", work)
    assert guests.run_in_thread("x", "web2", work)
    gate.set()


def test_what_no_thread_could_be_had_for_is_begun_when_there_is_one(guests, monkeypatch, caplog):
    """It was held to be at work for ever: a guest was neither started nor killed any more."""

    real = threading.Thread.start

    def start(thread):
        if thread.name.endswith(" web1"):
            raise RuntimeError("can't start new thread")
        real(thread)

    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", start)
        guests.start("web1", 4)
        guests.kill("web1")
    assert "cannot start web1: can't start new thread" in caplog.messages
    assert not guests.instances.get("web1").busy
    guests.start("web1", 4)
    becomes(guests, "web1", messages.RUNNING)
    end(guests, "web1")


def test_the_definition_of_a_guest_that_was_just_given_is_told_at_once(guests):
    told = []
    guests.names = frozenset()
    looked_s = guests.instances.observed_s
    guests.clock.sleep(5)
    until(lambda: guests.instances.observed_s > looked_s, "a look that knows none")
    guests.resend()
    until(lambda: guests._sent_s, "a look that had nothing to tell")
    guests.on_definition = told.append
    guests.names = frozenset(["test"])
    until(lambda: told, "the definition", 5)


def test_definitions_are_told_once_and_again_when_somebody_comes(guests):
    told = []

    def tell(found):
        # other tests of the process have guests of their own there while a connection is open
        if found.name == "test":
            told.append(found)

    guests.on_definition = tell
    guests.resend()
    until(lambda: told, "the definition")
    assert told[0].body()["size"]["memory_kib"] == 8 * 1024**2
    before = len(told)
    guests.clock.sleep(20)
    guests.resend()
    until(lambda: len(told) > before, "once more")


@pytest.mark.parametrize(
    "xml", ["", "<domain/>", XML.format(name="other"), "<a><memory>x</memory></a>"]
)
def test_a_definition_that_is_none_is_refused(xml):
    with pytest.raises(errors.InvalidInput, match="web1"):
        definition("web1", xml)


def test_a_definition_outlives_the_agent_and_goes_with_its_guest(tmp_path):
    """An agent that has begun anew knows it still, before a master tells it again."""
    folder = str(tmp_path / "definitions")
    one = DefinitionCache(folder, [])
    for name in ("web1", "web2", "../web3"):
        one.put(definition(name, XML.format(name=name)))
    (tmp_path / "definitions/web2.xml").write_text("<dom")
    before = os.stat(f"{folder}/web1.xml")
    one.put(definition("web1", XML.format(name="web1")))
    assert os.stat(f"{folder}/web1.xml") == before, "what is told again is not written again"
    again = DefinitionCache(folder, ["web1", "web2", "../web3"])
    assert again.get("web1") == one.get("web1") and again.get("web2") is None
    assert again.get("../web3") == one.get("../web3")
    DefinitionCache(folder, ["web1"])
    assert os.listdir(folder) == ["web1.xml"]
    assert os.stat(f"{folder}/web1.xml").st_mode & 0o777 == 0o600


def test_masters_learn_why_a_guest_did_not_migrate(tmp_path):
    """Its target never says that it takes it."""
    copies = InstanceTable(str(tmp_path / "guests.json"), "a", 0)
    copies.put("web1", Instance(4, messages.RUNNING))
    told, asked, now = [], [], [0.0]
    one = migrations.GuestMigrations(
        SimpleNamespace(instances=copies), lambda: now[0], lambda *words: asked.append(words),
        str, lambda *words: told.append(words),
    )  # fmt: skip
    one.send("web1", 5, "hv2")
    assert (asked, told) == ([("hv2", "web1", 5)], [])
    now[0] = migrations.ASK_TIMEOUT_S + 1
    one.send("web1", 5, "hv2")
    assert told == [("web1", "hv2", "the target did not consent")]
    assert copies.get("web1").migrated == 5


@pytest.fixture
def moving(guests):
    """A guest that is about to leave; what its target was asked, what masters were told."""
    guests.definition_cache.put(definition("web1", XML.format(name="web1")))
    guests.start("web1", 4)
    becomes(guests, "web1", messages.RUNNING)
    guests.asked, guests.told_ = [], []
    guests.now = Clock(10)
    guests.migrations = migrations.GuestMigrations(
        guests, guests.now.monotonic, lambda *words: guests.asked.append(words),
        "test:///{}".format, lambda *words: guests.told_.append(words),
    )  # fmt: skip
    guests.migrations.send("web1", 5, "hv2")
    dom = guests.domain("web1")
    yield guests
    dom.destroy()
    dom.undefine()


def test_a_guest_goes_when_its_target_says_yes_in_time_to_the_question_that_was_asked(moving):
    for host, epoch, yes in (("hv3", 5, True), ("hv2", 4, True), ("hv2", 5, False)):
        moving.migrations.handle_answer(host, "web1", epoch, yes)
    moving.now.sleep(migrations.CONSENT_S)
    moving.migrations.handle_answer("hv2", "web1", 5, True)
    assert moving.told_ == [] and not moving._busy
    moving.migrations.send("web1", 5, "hv2")
    moving.migrations.handle_answer("hv2", "web1", 5, True)
    until(lambda: moving.told_, "libvirt's word: its test driver migrates none")
    [(name, host, why)] = moving.told_
    assert (name, host) == ("web1", "hv2") and "not supported" in why
    assert moving.instances.get("web1").migrated == 5


@pytest.mark.parametrize("arrives", [True, False])
def test_a_migration_that_the_agent_before_began_is_followed(moving, monkeypatch, arrives):
    """After SIGHUP it was asked for again, refused by libvirt, and told as failed: its target
    killed what arrived there."""
    there = [True, True, False]
    monkeypatch.setattr(migrations, "_is_under_way", lambda _dom: there.pop(0))
    monkeypatch.setattr(migrations, "_POLL_S", 0)
    monkeypatch.setattr(libvirt.virDomain, "migrateToURI3", lambda *_: 1 / 0)
    real = moving.domain
    looked = [real("web1"), None if arrives else real("web1")]
    monkeypatch.setattr(moving, "domain", lambda _name: looked.pop(0))
    dropped = []  # a look at libvirt, where the guest is, makes its copy anew at once
    monkeypatch.setattr(moving.instances, "drop", dropped.append)
    moving.migrations.handle_answer("hv2", "web1", 5, True)
    until(lambda: dropped or moving.told_, "its end")
    assert (there, dropped) == ([], ["web1"] if arrives else [])
    assert bool(moving.told_) is not arrives
    monkeypatch.setattr(moving, "domain", real)


def test_a_guest_on_its_way_is_not_asked_for_again_and_may_be_too_late(moving, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(moving, "domain", lambda name: gate.wait(120) and None)
    moving.migrations.handle_answer("hv2", "web1", 5, True)
    moving.migrations.send("web1", 5, "hv2")
    moving.migrations.handle_answer("hv2", "web1", 5, True)
    assert moving.asked == [("hv2", "web1", 5)]
    gate.set()
    until(lambda: moving.told_, "its end")
    assert moving.told_ == [("web1", "hv2", "the consent of the target has expired")]
    moving.migrations.send("web1", 6, "hv2")
    assert moving.asked[1:] == [("hv2", "web1", 6)]


def test_a_guest_does_not_go_while_libvirt_is_away_and_may_later(moving, monkeypatch):
    """It was held to be on its way for ever."""

    def away(_name):
        raise errors.ConnectionFailed("libvirt does not respond")

    monkeypatch.setattr(moving, "domain", away)
    moving.migrations.handle_answer("hv2", "web1", 5, True)
    until(lambda: moving.told_, "its end")
    assert moving.told_ == [("web1", "hv2", "libvirt does not respond")]
    moving.migrations.send("web1", 5, "hv2")
    assert len(moving.asked) == 2


@pytest.mark.parametrize("said, aborted", [({}, 1), ({"memory_processed": 1}, 0)])
def test_a_migration_that_does_not_begin_is_ended(monkeypatch, said, aborted):
    """No libvirt hangs in one on request."""
    monkeypatch.setattr(migrations, "BEGIN_S", 0.01)
    aborts = []
    dom = SimpleNamespace(jobStats=lambda: said, abortJob=lambda: aborts.append(1))
    migrations._watch(dom, threading.Event())
    assert len(aborts) == aborted
    done = threading.Event()
    done.set()
    migrations._watch(dom, done)
    assert len(aborts) == aborted
