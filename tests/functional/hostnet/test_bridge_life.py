"""A bridge made and taken away, in a network namespace of its own: real links, files and scripts.

How a distribution's tools are told is in test_bridge.py; here ``ip`` alone makes the bridge. Of
systemd, whose timer would put all back, only the commands are looked at.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from saltvirt.errors import AlreadyExists, InvalidInput, OperationFailed, Unsupported
from saltvirt.hostnet import program
from saltvirt.hostnet.bridge import bridges
from saltvirt.hostnet.bridge.plan import BridgePlan
from tests.clock import Clock

SPACE = f"salt-virt-bridge-{os.getpid()}"
YAML = (json.loads, json.dumps)
IP = ("ip", "link")


def moved(source, target, address="10.9.0.5/24"):
    """The commands that move the host's address."""
    return (("ip", "addr", "del", address, "dev", source),
            ("ip", "addr", "add", address, "dev", target))  # fmt: skip


class Host:
    """A host with the interface eth0, whose configuration is in files of a folder.

    called: what was asked of systemd. refuses: whether it arms no timer. restores: whether what it
    is told to start comes to its end.
    """

    def __init__(self, folder):
        self.folder, self.called, self.refuses, self.restores = folder, [], False, True
        self.old, self.gone, self.new = (folder / name for name in ("old.conf", "gone", "d/new"))
        self.old.write_text("as it was\n")
        self.gone.write_text("is in the way\n")
        self.apply = ((*IP, "add", "br0", "type", "bridge"), (*IP, "set", "eth0", "master", "br0"))
        self.apply += ((*IP, "set", "br0", "up"), *moved("eth0", "br0"))
        self.undo = ((*IP, "delete", "br0"), moved("br0", "eth0")[1])

    def run(self, argv, text=None, must=False):
        if argv[0].startswith("systemd") or argv[0] == "systemctl":
            self.called.append(argv)
            if self.refuses and must:
                raise OperationFailed("systemd-run: no bus")
            if argv[:2] == ("systemctl", "start") and self.restores:
                self.fire()
            return ""
        return program_run(("ip", "netns", "exec", SPACE, *argv), text, must)

    def fire(self):
        """What systemd runs once the timer that was armed last is over. The systemctl that it
        calls keeps its arguments."""
        armed = next(a for a in reversed(self.called) if a[0] == "systemd-run")
        folder = self.folder / "bin-of-systemd"
        folder.mkdir(exist_ok=True)
        (folder / "systemctl").write_text(f"#!/bin/sh\necho $* >>{folder}/called\n")
        (folder / "systemctl").chmod(0o755)
        self.run(("env", f"PATH={folder}:{os.environ['PATH']}", *armed[-2:]))
        return (folder / "called").read_text()

    def ip(self, *argv):
        return self.run(("ip", *argv), must=True)

    def find(self, name, interface, _host):
        assert name == "br0"
        files = {str(self.old): "with br0\n", str(self.gone): None, str(self.new): "br0\n"}
        return BridgePlan(files, ((*IP, "set", interface, "up"),), self.apply, self.undo)

    def tagged(self, vlan, host):
        return self.find(vlan.bridge, vlan.interface, host)

    def files(self):
        return {p.name: p.read_text() for p in (self.old, self.gone, self.new) if p.exists()}

    def armed(self):
        """Which way back was armed, and whether it was disarmed after."""
        armed = [argv[-1] for argv in self.called if argv[0] == "systemd-run"]
        ways = [re.fullmatch(r"[\w./-]+/(\w+)-by-timer", path)[1] for path in armed]
        stopped = [argv for argv in self.called if argv[:2] == ("systemctl", "stop")]
        enabled = [argv[1] for argv in self.called if argv[1:2] in (("enable",), ("disable",))]
        assert enabled == ["enable", "disable"] * bool(stopped) or not stopped
        self.called.clear()
        return ways, len(stopped)


SHOWN = ("show", "-p", "ActiveState", f"{bridges.UNIT}.timer", f"{bridges.UNIT}.service")
SHOWN += (f"{bridges.BOOT_UNIT}.service",)
BEFORE = {"old.conf": "as it was\n", "gone": "is in the way\n"}
AFTER = {"old.conf": "with br0\n", "new": "br0\n"}
program_run = program.run


@pytest.fixture
def host(tmp_path, monkeypatch):
    if not shutil.which("ip"):
        pytest.skip("no ip")
    one = Host(tmp_path)
    monkeypatch.setattr(program, "run", one.run)
    monkeypatch.setattr(bridges, "SAVED_FOLDER", tmp_path / "kept")
    monkeypatch.setattr(bridges, "BOOT_FOLDER", tmp_path / "units")
    bridges.BOOT_FOLDER.mkdir()
    monkeypatch.setattr(bridges, "MANAGERS", (one,))
    monkeypatch.setattr(bridges, "time", Clock())
    subprocess.run(["ip", "netns", "add", SPACE], check=True)
    try:
        one.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        one.ip("addr", "add", "10.9.0.5/24", "dev", "eth0")
        yield one
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], check=True)


def test_it_is_made_over_the_interface_with_the_address_and_taken_away(host):
    said = bridges.create_bridge("br0", None, YAML)
    assert (
        said
        == f"br0 on eth0; the previous configuration is saved in {bridges.SAVED_FOLDER / 'br0'}"
    )
    assert host.files() == AFTER
    assert host.armed() == (["restore"], 1)
    assert "master br0" in host.ip("link", "show", "eth0")
    with pytest.raises(AlreadyExists, match=r"^br0 already exists, and is left unchanged$"):
        bridges.create_bridge("br0", "eth0", YAML)
    assert (host.files(), host.called) == (AFTER, [("systemctl", *SHOWN)])
    host.called.clear()
    assert (bridges.exists("br0"), bridges.bridge_record("br0")["interface"]) == (True, "eth0")
    assert bridges.remove_bridge("br0") == "eth0 is configured as before br0"
    assert host.files() == BEFORE
    assert host.armed() == (["again"], 1)
    assert (bridges.exists("br0"), bridges.bridge_record("br0")) == (False, None)
    assert not (bridges.SAVED_FOLDER / "br0").exists()


def test_over_the_default_route_or_the_interface_that_is_named(host):
    host.ip("addr", "add", "10.8.0.5/24", "dev", "eth1")
    with pytest.raises(InvalidInput, match="these interfaces have addresses: eth0, eth1"):
        bridges.plan("br0", None, YAML)
    host.ip("link", "set", "eth1", "up")
    host.ip("link", "set", "eth0", "up")
    host.ip("route", "add", "default", "via", "10.8.0.1", "dev", "eth1")
    assert bridges.plan("br0", None, YAML)[0] == "eth1"
    assert bridges.plan("br0", "eth0", YAML)[0] == "eth0"


def test_over_a_vlan_of_a_bridge_of_ours_its_interface_is_meant(host, monkeypatch):
    bridges.create_bridge("br0", "eth0", YAML)
    asked = []
    monkeypatch.setattr(host, "tagged", lambda vlan, _host: asked.append(vlan) or "a plan")
    assert bridges.plan("br100", "br0", YAML, vlan="100") == ("eth0", "a plan")
    assert bridges.plan("br100", "eth1", YAML, vlan=7) == ("eth1", "a plan")
    assert [(one.interface, one.number) for one in asked] == [("eth0", 100), ("eth1", 7)]
    monkeypatch.setattr(bridges, "MANAGERS", ())
    with pytest.raises(Unsupported, match=r"eth1 is not configured by netplan.*create br9 on"):
        bridges.plan("br9", "eth1", YAML)
    with pytest.raises(InvalidInput, match="this host has no interface eth7"):
        bridges.plan("br9", "eth7", YAML)


def test_what_does_not_come_up_is_put_back(host):
    host.apply = host.apply[:1]
    with pytest.raises(OperationFailed, match="could not be brought up within 60 s, so eth0 was"):
        bridges.create_bridge("br0", "eth0", YAML)
    assert host.files() == BEFORE
    assert host.armed() == (["restore"], 1)
    assert (bridges.exists("br0"), bridges.bridge_record("br0")) == (False, None)


def test_addresses_that_the_bridge_does_not_get_are_a_failure(host):
    host.ip("-6", "addr", "add", "fd00::5/64", "dev", "eth0")
    reason = "could not get fd00::5/64 on br0 within 60 s, so eth0 was restored"
    with pytest.raises(OperationFailed, match=reason):
        bridges.create_bridge("br0", "eth0", YAML)
    assert host.files() == BEFORE


def test_what_is_not_put_back_to_the_end_stays_armed(host):
    host.apply, host.restores = host.apply[:1], False
    with pytest.raises(OperationFailed, match=r"eth0 has not been restored after 300 s: check"):
        bridges.create_bridge("br0", "eth0", YAML)
    assert host.armed() == (["restore"], 0)
    unit = (bridges.BOOT_FOLDER / "salt-virt-network-unconfirmed.service").read_text()
    assert f"ExecStart=/bin/sh {bridges.SAVED_FOLDER}/br0/restore\n" in unit


def test_what_the_timer_has_put_back_the_next_start_leaves_alone(host, monkeypatch):
    """A minion that died meanwhile disarms nothing."""

    class Died(Exception):
        pass

    def died(*_args):
        raise Died

    monkeypatch.setattr(bridges, "_wait_until", died)
    with pytest.raises(Died):
        bridges.create_bridge("br0", "eth0", YAML)
    assert (host.files(), len(list(bridges.BOOT_FOLDER.iterdir()))) == (AFTER, 1)
    assert host.fire() == "disable salt-virt-network-unconfirmed.service\n"
    assert (host.files(), list(bridges.BOOT_FOLDER.iterdir())) == (BEFORE, [])


def test_the_way_back_is_armed_for_longer_than_a_change_may_take(host):
    bridges.create_bridge("br0", "eth0", YAML, timeout_s=40)
    [armed] = [argv for argv in host.called if argv[0] == "systemd-run"]
    [after] = [word for word in armed if word.startswith("--on-active=")]
    assert float(after.partition("=")[2]) > 60 + 40
    assert not list(bridges.BOOT_FOLDER.iterdir())


@pytest.mark.parametrize("state", ["active", "activating", "deactivating"])
def test_a_change_waits_for_one_that_is_being_put_back(host, monkeypatch, state):
    run = program.run
    show = ("systemctl", "show")

    def answered(argv, *more, **named):
        if argv[:2] == show:
            return f"ActiveState=inactive\nActiveState={now}\n"
        return run(argv, *more, **named)

    monkeypatch.setattr(program, "run", answered)
    now = state
    with pytest.raises(OperationFailed, match="apply this again in two minutes"):
        bridges.create_bridge("br0", "eth0", YAML)
    assert host.files() == BEFORE
    now = "inactive"
    bridges.create_bridge("br0", "eth0", YAML)
    host.called.clear()
    now = state
    with pytest.raises(OperationFailed, match="apply this again in two minutes"):
        bridges.remove_bridge("br0")
    assert (host.files(), host.called) == (AFTER, []), "nor is its way back disarmed"


def test_without_a_master_behind_the_interface_its_gateway_must_answer(host):
    """The master is reached by another interface: that says nothing of this one."""
    host.ip("link", "set", "lo", "up")
    host.ip("link", "set", "eth0", "up")
    host.ip("link", "set", "eth1", "up")
    host.ip("route", "add", "default", "via", "10.9.0.1", "dev", "eth0")
    reason = r"could not reach its gateway 10\.9\.0\.1"
    with (
        socket.create_server(("127.0.0.1", 0)) as master,
        pytest.raises(OperationFailed, match=reason),
    ):
        bridges.create_bridge("br0", "eth0", YAML, master.getsockname(), 9)


def test_a_gateway_answers_on_a_host_without_ping(host, tmp_path):
    peer = f"{SPACE}-peer"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ip").symlink_to(shutil.which("ip"))
    ask = "import sys; from saltvirt.hostnet.bridge import bridges"
    ask += "; print([bridges._neighbour(one, 'eth0') for one in sys.argv[1:]])"
    subprocess.run(["ip", "netns", "add", peer], check=True)
    try:
        host.ip("link", "set", "eth1", "netns", peer)
        host.ip("link", "set", "eth0", "up")
        for argv in (("addr", "add", "10.9.0.1/24", "dev", "eth1"), ("link", "set", "eth1", "up")):
            subprocess.run(["ip", "-n", peer, *argv], check=True)
        argv = ["ip", "netns", "exec", SPACE, sys.executable, "-c", ask, "10.9.0.1", "10.9.0.7"]
        env = {"PATH": f"{tmp_path}/bin", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    finally:
        subprocess.run(["ip", "netns", "del", peer], check=True)
    assert done.stdout == "[True, False]\n"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()


def test_a_host_that_cannot_reach_its_master_is_put_back_either_way(host):
    nobody = free_port()
    why = f"could not reach {nobody[0]}:{nobody[1]} within 9 s, so"
    with pytest.raises(OperationFailed, match=f"with br0, the host {why} eth0 was restored"):
        bridges.create_bridge("br0", "eth0", YAML, nobody, 9)
    assert (host.files(), bridges.bridge_record("br0")) == (BEFORE, None)
    with socket.create_server(("127.0.0.1", 0)) as master:
        bridges.create_bridge("br0", "eth0", YAML, master.getsockname(), 9)
    host.called.clear()
    with pytest.raises(OperationFailed, match=f"without br0, the host {why} br0 was restored"):
        bridges.remove_bridge("br0", nobody, 9)
    assert host.files() == AFTER
    assert host.armed() == (["again"], 1)
    assert bridges.exists("br0")
    assert bridges.bridge_record("br0")["interface"] == "eth0"


def test_without_a_way_back_nothing_is_changed(host):
    host.refuses = True
    with pytest.raises(
        OperationFailed, match=r"^the rollback could not be prepared: systemd-run: no bus$"
    ):
        bridges.create_bridge("br0", "eth0", YAML)
    assert (host.files(), bridges.exists("br0")) == (BEFORE, False)
    assert bridges.bridge_record("br0") is None, "so that one made by hand now is the operator's"


def test_two_changes_at_once_are_one(host):
    """The second one would replace what the first one kept, and disarm its way back."""
    inner = []

    def both(argv, text=None, must=False):
        if argv[0] == "systemd-run":
            with pytest.raises(OperationFailed, match="apply this again in two minutes"):
                bridges.create_bridge("br0", "eth0", YAML)
            with pytest.raises(OperationFailed, match="apply this again in two minutes"):
                bridges.remove_bridge("br0")
            inner.append(argv)
        return host.run(argv, text, must)

    program.run, run = both, program.run
    try:
        bridges.create_bridge("br0", "eth0", YAML)
    finally:
        program.run = run
    assert (host.armed(), len(inner)) == ((["restore"], 1), 1)
    assert bridges.remove_bridge("br0") == "eth0 is configured as before br0"


@pytest.mark.parametrize("timeout_s", ["abc", None, 0, -5, float("inf"), float("nan"), True, [1]])
def test_a_time_that_is_none_is_refused_before_anything_changes(host, timeout_s):
    with pytest.raises(InvalidInput, match=r"timeout_s: .* is not a positive number of seconds"):
        bridges.create_bridge("br0", "eth0", YAML, timeout_s=timeout_s)
    assert (host.called, bridges.SAVED_FOLDER.exists()) == ([], False)
    bridges.create_bridge("br0", "eth0", YAML, timeout_s="60")
    with pytest.raises(InvalidInput, match="timeout_s"):
        bridges.remove_bridge("br0", timeout_s=timeout_s)


def test_one_that_is_down_is_not_made_again_over_its_own_files(host):
    """They would count as what was there before, and the real ones would be lost."""
    bridges.create_bridge("br0", "eth0", YAML)
    host.ip("link", "delete", "br0")
    host.ip("addr", "add", "10.9.0.5/24", "dev", "eth0")
    why = "br0 was created on eth0 and is configured, but is not up"
    with pytest.raises(OperationFailed, match=why):
        bridges.create_bridge("br0", "eth0", YAML)
    assert (host.files(), bridges.bridge_record("br0")["interface"]) == (AFTER, "eth0")
    assert (bridges.SAVED_FOLDER / "br0/old-0").read_text() == BEFORE["old.conf"]
    host.undo = ((*IP, "set", "eth0", "up"),)
    assert bridges.remove_bridge("br0") == "eth0 is configured as before br0"
    assert host.files() == BEFORE


def test_one_that_was_removed_by_hand_is_made_anew(host):
    bridges.create_bridge("br0", "eth0", YAML)
    host.ip("link", "delete", "br0")
    host.ip("addr", "add", "10.9.0.5/24", "dev", "eth0")
    host.new.unlink()
    host.old.write_text("by hand\n")
    assert bridges.bridge_record("br0") is None
    bridges.create_bridge("br0", "eth0", YAML)
    assert (bridges.SAVED_FOLDER / "br0/old-0").read_text() == "by hand\n"
    assert (bridges.SAVED_FOLDER / "br0~/old-0").read_text() == BEFORE["old.conf"]


def test_which_interface_a_bridge_of_ours_is_over(host):
    bridges.create_bridge("br0", "eth0", YAML)
    made = bridges.bridge_record("br0")
    assert [bridges.is_over(made, name) for name in (None, "eth0", "br0", "eth1")] == [
        *(True, True, True, False)
    ]
    host.ip("link", "set", "eth1", "master", "br0")
    assert bridges.is_over(made, "eth1"), "the operator has put it there"


def test_what_is_not_ours_or_is_in_use_or_was_changed_stays(host):
    with pytest.raises(
        OperationFailed, match=r"^br0 was not created by Salt Virt, and is left unchanged$"
    ):
        bridges.remove_bridge("br0")
    bridges.create_bridge("br0", "eth0", YAML)
    host.ip("link", "set", "eth1", "master", "br0")
    with pytest.raises(OperationFailed, match=r"^br0 is in use by eth1$"):
        bridges.remove_bridge("br0")
    host.ip("link", "set", "eth1", "nomaster")
    for path, text in ((host.old, "by hand\n"), (host.gone, "there again\n")):
        before = path.read_text() if path.exists() else None
        path.write_text(text)
        with pytest.raises(OperationFailed, match=f"^{path} has changed since br0 was created"):
            bridges.remove_bridge("br0")
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(OperationFailed, match=f"^{path} has changed since br0 was created"):
            bridges.remove_bridge("br0")
        path.unlink() if before is None else path.write_text(before)
    assert bridges.exists("br0")
    assert bridges.remove_bridge("br0") == "eth0 is configured as before br0"


# what of Open vSwitch is asked, with the kernel's own bridge
OVS = """#!/bin/sh
for word; do case $word in --*) shift;; *) break;; esac; done
case $1 in
    "") echo 3.1;;
    show) echo here;;
    list-br) ;;
    add-br) exec ip link add $2 type bridge;;
    add-port) exec ip link set $3 master $2;;
    list-ports) ip -o link show master $2 | sed 's/^[0-9]*: \\([^@:]*\\).*/\\1/';;
    del-br) exec ip link delete $2;;
    *) exit 1;;
esac
"""


def test_a_bridge_of_open_vswitch_goes_the_same_ways(host, tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ovs-vsctl").write_text(OVS)
    (folder / "ovs-vsctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with pytest.raises(Unsupported, match=r"eth0 has the address 10\.9\.0\.5"):
        bridges.create_ovs_bridge("ovs0", "eth0")
    said = bridges.create_ovs_bridge("ovs0", "eth1")
    assert (
        said
        == f"ovs0 on eth1; the previous configuration is saved in {bridges.SAVED_FOLDER / 'ovs0'}"
    )
    assert (bridges.bridge_record("ovs0")["type"], host.armed()) == ("ovs", (["restore"], 1))
    assert "master ovs0" in host.ip("link", "show", "eth1")
    host.ip("link", "add", "vnet0", "type", "veth", "peer", "name", "guest")
    host.ip("link", "set", "vnet0", "master", "ovs0")
    with pytest.raises(OperationFailed, match=r"^ovs0 is in use by vnet0$"):
        bridges.remove_bridge("ovs0")
    host.ip("link", "delete", "vnet0")
    assert bridges.remove_bridge("ovs0") == "eth1 is configured as before ovs0"
    assert not bridges.exists("ovs0")
    assert bridges.create_ovs_bridge("ovs0", None).startswith("ovs0 on nothing; ")
    assert bridges.remove_bridge("ovs0") == "All is configured as before ovs0"
