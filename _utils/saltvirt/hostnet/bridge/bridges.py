"""Create and remove bridges on top of the host's own interface, with automatic rollback.

The host is reached through the interface that is changed. The previous configuration is therefore
saved, and before the change a systemd timer and a unit for the next boot are armed that restore it.
They are disarmed only when the bridge has the interface's addresses and the master, or the gateway,
responds through it. Removing a bridge works in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from saltvirt.errors import AlreadyExists, InvalidInput, OperationFailed, Unsupported
from saltvirt.hostnet import program
from saltvirt.hostnet.bridge import ifcfg, ifupdown, netplan, networkd, networkmanager, ovs
from saltvirt.hostnet.bridge.plan import BridgeHost, BridgeVlan, encoded
from saltvirt.system import atomic_file, file_lock, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from saltvirt.hostnet.bridge.plan import BridgePlan, Yaml


class BridgeSetup(TypedDict):
    """A bridge to create: on top of which interface, its port, and the VLAN or None. type: linux or
    ovs."""

    bridge: str
    interface: str | None
    port: str | None
    vlan: int | None
    type: str


class BridgeRecord(BridgeSetup):
    """A bridge that Salt Virt has created. files: those written for it, with their SHA-256."""

    files: dict[str, str | None]


# (host, port) that must be reachable
Probe = tuple[str, int]

SAVED_FOLDER = Path(paths.STATE, "network-before")
UNIT = "salt-virt-network-back"
# runs if the host boots before the change is confirmed
BOOT_UNIT = "salt-virt-network-unconfirmed"
BOOT_FOLDER = Path("/etc/systemd/system")
BOOT_TEXT = """[Unit]
Description=The network as it was before a change that was not confirmed
Documentation=file://{kept}
After=local-fs.target network.target networking.service NetworkManager.service \
systemd-networkd.service wicked.service
[Service]
Type=oneshot
ExecStart=/bin/sh {kept}/{script}
ExecStartPost=/bin/systemctl disable {unit}.service
[Install]
WantedBy=multi-user.target
"""
# created by a script at its end
END = "ended"
# suffix of a script that the timer runs
BY_TIMER = "-by-timer"
# a UDP port without a service
_DISCARD = 9
# timeouts of a script that is called, and of one that systemd runs
FOLLOW_S, RESTORE_S = program.TIMEOUT_S, 300
# netplan first, because it writes files for the next two
MANAGERS = (netplan, networkmanager, networkd, ifcfg, ifupdown)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")


def exists(bridge: object) -> bool:
    """Whether an interface has that name."""
    return bool(program.run(("ip", "link", "show", _named(bridge))))


def bridge_record(bridge: str) -> BridgeRecord | None:
    """The record of a bridge; None if Salt Virt did not create it, or if it was removed manually:
    it does not exist and the host's configuration has changed."""
    try:
        record: BridgeRecord = json.loads(
            (SAVED_FOLDER / _named(bridge) / "made.json").read_text(encoding="utf-8")
        )
    except (OSError, ValueError):
        return None
    return None if _changed(record) and not exists(bridge) else record


def _changed(record: BridgeRecord) -> str | None:
    """A file that has changed since the bridge was created, or None."""
    files = record["files"].items()
    return next((path for path, digest in files if _digest(Path(path)) != digest), None)


def is_over(record: BridgeRecord, interface: str | None) -> bool:
    """Whether a bridge of Salt Virt is on top of that interface; None: of any. Ports that were
    added manually count, and a bridge of Salt Virt is replaced by the interface below it."""
    name = _below(_named(interface)) if interface else record["interface"]
    if not name or name == record["interface"]:
        return True
    port = BridgeVlan(record["bridge"], name, record["vlan"]).port if record["vlan"] else name
    return port in _ports(record)


def _below(interface: str) -> str:
    """The interface, or the one below it if it is a bridge of Salt Virt."""
    record = bridge_record(interface)
    return (record and record["interface"]) or interface


def plan(
    bridge: object, interface: str | None, yaml: Yaml, vlan: object = None
) -> tuple[str, BridgePlan]:
    """(interface, BridgePlan). interface: default the one with the default route, or else the only
    one with an address. yaml: (load, dump). vlan: number of the VLAN to use; default: the interface
    itself.

    Raises InvalidInput if the interface does not exist, Unsupported for an unknown network manager.
    """
    tag = None if vlan is None else _tag(vlan)
    name = _named(interface) if interface else _main_interface()
    name = _below(name) if tag else name
    host = BridgeHost(program.run, *yaml)
    for manager in MANAGERS:
        if tag:
            bridge_plan = manager.tagged(BridgeVlan(_named(bridge), name, tag), host)
        else:
            bridge_plan = manager.find(_named(bridge), name, host)
        if bridge_plan:
            return name, bridge_plan
    if not exists(name):
        raise InvalidInput(f"this host has no interface {name}")
    raise Unsupported(
        f"{name} is not configured by netplan, NetworkManager, systemd-networkd, wicked, "
        f"network-scripts or ifupdown: create {bridge} on top of it yourself, then apply this again"
    )


def create_bridge(
    bridge: str,
    interface: str | None,
    yaml: Yaml,
    probe: Probe | None = None,
    timeout_s: float = 60,
    vlan: object = None,
) -> str:
    """Create a bridge on top of an interface or of one of its VLANs, and return a description.

    probe: (host, port) that must be reachable afterwards. Raises OperationFailed after a rollback
    if ``probe`` is unreachable.
    """
    limit_s = _seconds(timeout_s)
    with _exclusive():
        _refuse_existing(bridge)
        name, bridge_plan = plan(bridge, interface, yaml, vlan)
        tag = None if vlan is None else _tag(vlan)
        if not tag:
            _refuse_vlans(name)
        port = BridgeVlan(bridge, name, tag).port if tag else name
        setup: BridgeSetup = {"bridge": bridge, "interface": name, "port": port,
                              "vlan": tag, "type": "linux"}  # fmt: skip
        return _make(setup, bridge_plan, probe, limit_s)


def plan_ovs(bridge: object, interface: str | None) -> BridgePlan:
    """The BridgePlan of an Open vSwitch bridge with that port; interface None: without a port.

    Raises Unsupported for an interface with an address, which is not moved.
    """
    port = _named(interface) if interface else None
    return ovs.plan(_named(bridge), port, BridgeHost(program.run))


def create_ovs_bridge(
    bridge: str, interface: str | None, probe: Probe | None = None, timeout_s: float = 60
) -> str:
    """Create a bridge of Open vSwitch with the same rollback, and return a description."""
    limit_s = _seconds(timeout_s)
    with _exclusive():
        _refuse_existing(bridge)
        bridge_plan = plan_ovs(bridge, interface)
        setup: BridgeSetup = {"bridge": bridge, "interface": interface, "port": interface,
                              "vlan": None, "type": "ovs"}  # fmt: skip
        return _make(setup, bridge_plan, probe, limit_s)


def _make(
    setup: BridgeSetup, bridge_plan: BridgePlan, probe: Probe | None, timeout_s: float
) -> str:
    bridge, port = setup["bridge"], setup["port"]
    _refuse_armed()
    connectivity = _connectivity(setup, setup["interface"], bridge, probe)

    def is_up() -> bool:
        return port in _ports(setup) if port else exists(bridge)

    _save(setup, bridge_plan)
    _arm(bridge, "restore", timeout_s)
    _follow(bridge, "again")
    if not _wait_until(timeout_s, lambda: is_up() and not connectivity.missing()):
        reason = (is_up() and connectivity.missing()) or "be brought up"
        restored = _put_back(bridge, "restore")
        raise OperationFailed(
            f"with {bridge}, the host could not {reason} within {timeout_s:g} s, so "
            f"{setup['interface'] or 'all'} {restored or 'was restored'}"
        )
    _disarm()
    return (
        f"{bridge} on {port or 'nothing'}; the previous configuration is saved in "
        f"{SAVED_FOLDER / bridge}"
    )


def moves_address(setup: BridgeSetup) -> bool:
    """Whether the host's own addresses move to the bridge."""
    return setup["vlan"] is None and setup["type"] == "linux" and setup["interface"] is not None


@dataclass(frozen=True)
class Connectivity:
    """The condition for an interface that receives addresses.

    addresses: that it must have. device: the interface; None for any. gateway: must respond on the
    link if the master is not reached through it. probe: the master's (host, port), or None; bound:
    it must respond through the device.
    """

    addresses: tuple[str, ...]
    device: str | None
    gateway: str | None
    probe: Probe | None
    bound: bool

    def missing(self) -> str | None:
        """What the host cannot do, as the words after "could not"; None if nothing is missing."""
        lost = {*self.addresses} - {*_addresses(self.device)} if self.device else ()
        if lost:
            return f"get {', '.join(sorted(lost))} on {self.device}"
        if self.gateway and self.device and not _neighbour(self.gateway, self.device):
            return f"reach its gateway {self.gateway}"
        if self.probe and not _connects(self.probe, self.device if self.bound else None):
            return f"reach {self.probe[0]}:{self.probe[1]}"
        return None


def _connectivity(
    setup: BridgeSetup, before: str | None, after: str, probe: Probe | None
) -> Connectivity:
    """The condition after the change. before, after: the interface with the addresses, if they
    move."""
    if not moves_address(setup):
        return Connectivity((), None, None, probe, False)
    through = probe is not None and _route_device(probe[0]) == before
    gateway = None if through else _gateway(before)
    return Connectivity(_addresses(before), after, gateway, None if gateway else probe, through)


def _put_back(bridge: str, script: str) -> str | None:
    """Run the script that rolls a change back in systemd, without a timeout of this process. None
    when it has finished; otherwise its state, and the timer and the unit stay armed."""
    end = SAVED_FOLDER / bridge / END
    end.unlink(missing_ok=True)
    program.run(("systemctl", "start", "--no-block", f"{UNIT}.service"))
    if _wait_until(RESTORE_S, end.exists):
        _disarm()
        return None
    return (
        f"has not been restored after {RESTORE_S} s: check `systemctl status "
        f"{UNIT}.service`; to restore it yourself, run {SAVED_FOLDER / bridge / script}"
    )


def remove_bridge(bridge: str, probe: Probe | None = None, timeout_s: float = 60) -> str:
    """Remove a bridge of Salt Virt, restore the previous configuration, and return a description.

    Raises OperationFailed without any change if that is not safe, and after a rollback if ``probe``
    is unreachable.
    """
    limit_s = _seconds(timeout_s)
    with _exclusive():
        return _remove(bridge, probe, limit_s)


def _remove(bridge: str, probe: Probe | None, timeout_s: float) -> str:
    record = bridge_record(bridge)
    if record is None:
        raise OperationFailed(f"{bridge} was not created by Salt Virt, and is left unchanged")
    _refuse_armed()
    path = _changed(record)
    if path:
        raise OperationFailed(
            f"{path} has changed since {bridge} was created: remove the bridge yourself; "
            f"the previous configuration is in {SAVED_FOLDER / bridge}"
        )
    other_ports = set(_ports(record)) - {record["port"]}
    if other_ports:
        raise OperationFailed(f"{bridge} is in use by {', '.join(sorted(other_ports))}")
    if record["vlan"] is None and record["type"] == "linux":
        _refuse_vlans(record["interface"])
    connectivity = _connectivity(record, bridge, record["interface"] or "", probe)
    _arm(bridge, "again", timeout_s)
    _follow(bridge, "restore")
    if not _wait_until(timeout_s, lambda: not exists(bridge) and not connectivity.missing()):
        reason = (not exists(bridge) and connectivity.missing()) or "be brought up"
        restored = _put_back(bridge, "again")
        raise OperationFailed(
            f"without {bridge}, the host could not {reason} within {timeout_s:g} s, so "
            f"{bridge} {restored or 'was restored'}"
        )
    _disarm()
    shutil.rmtree(SAVED_FOLDER / bridge, ignore_errors=True)
    return f"{record['interface'] or 'All'} is configured as before {bridge}"


def _refuse_vlans(interface: str | None) -> None:
    """Refuse if bridges on VLANs of the interface exist: they depend on its current
    configuration."""
    names = [path.name for path in sorted(SAVED_FOLDER.glob("*")) if _NAME.fullmatch(path.name)]
    records = [bridge_record(name) for name in names]
    over_it = [
        record["bridge"]
        for record in records
        if record and record["vlan"] and record["interface"] == interface
    ]
    if over_it:
        raise OperationFailed(
            f"{', '.join(over_it)} is on a VLAN of {interface}: remove it first, and "
            "create it again afterwards"
        )


def _tag(vlan: Any) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", str(vlan)) or not 1 <= int(vlan) <= 4094:
        raise InvalidInput(f"invalid VLAN {vlan!r}: must be 1 to 4094")
    return int(vlan)


def _seconds(timeout_s: Any) -> float:
    with contextlib.suppress(TypeError, ValueError):
        seconds = float(timeout_s)
        if math.isfinite(seconds) and seconds > 0 and not isinstance(timeout_s, bool):
            return seconds
    raise InvalidInput(f"timeout_s: {timeout_s!r} is not a positive number of seconds")


def _named(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not a valid name of an interface")
    return name


def _main_interface() -> str:
    """The interface with the default route, or else the only one with an address."""
    match = re.search(r"\bdev (\S+)", program.run(("ip", "-4", "route", "show", "default")))
    if match:
        return match[1]
    lines = program.run(("ip", "-4", "-o", "addr", "show", "scope", "global")).splitlines()
    names = {line.split()[1] for line in lines}
    if len(names) != 1:
        raise InvalidInput(
            "set libvirt:network:interface: these interfaces have addresses: "
            f"{', '.join(sorted(names)) or 'none'}"
        )
    return names.pop()


def _ports(setup: BridgeSetup) -> list[str]:
    if setup["type"] == "ovs":
        return ovs.ports(setup["bridge"], program.run)
    output = program.run(("ip", "-j", "link", "show", "master", setup["bridge"]))
    return [link["ifname"] for link in json.loads(output or "[]") if "ifname" in link]


def _save(setup: BridgeSetup, bridge_plan: BridgePlan) -> None:
    """Save the files before and after the change, and a script for each direction."""
    folder = SAVED_FOLDER / setup["bridge"]
    if (folder / "made.json").exists():  # removed by hand since: what was before it may be of use
        shutil.rmtree(f"{folder}~", ignore_errors=True)
        atomic_file.rename(folder, f"{folder}~", durable=False)
    shutil.rmtree(folder, ignore_errors=True)
    SAVED_FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(mode=0o700)
    before = []
    for number, (name, text) in enumerate(bridge_plan.files.items()):
        if Path(name).exists():
            shutil.copy2(name, folder / f"old-{number}")
            before.append(f"cp -p {folder}/old-{number} {shlex.quote(name)}")
        else:
            before.append(f"rm -f {shlex.quote(name)}")
        if text is not None:
            new = folder / f"new-{number}"
            new.write_bytes(encoded(text))
            # networkd is not root, and netplan's own files are readable by root only
            new.chmod(Path(name).stat().st_mode & 0o777 if Path(name).exists() else 0o644)
    # ifupdown takes an interface down with the file that brought it up
    undo = [shlex.join(argv) for argv in bridge_plan.undo]
    made, undone, end = f"{folder}/made.json", f"{folder}/undone.json", f"touch {folder}/{END}"
    _script(folder / "restore", [undo[0], *before, *undo[1:], f"mv {made} {undone}", end])
    _script(
        folder / "again",
        [f"[ -e {made} ] || mv {undone} {made}", *_changes(bridge_plan, folder), end],
    )
    checksums = {name: _sha(text) for name, text in bridge_plan.files.items()}
    Path(undone).write_text(json.dumps({**setup, "files": checksums}), encoding="utf-8")


def _changes(bridge_plan: BridgePlan, saved: Path) -> list[str]:
    """The lines of the script that creates the bridge."""
    lines = [shlex.join(argv) for argv in bridge_plan.before]
    for number, (name, text) in enumerate(bridge_plan.files.items()):
        if text is None:
            lines.append(f"rm -f {shlex.quote(name)}")
        else:
            folder = shlex.quote(str(Path(name).parent))
            lines.append(f"mkdir -p {folder}")
            lines.append(f"cp -p {saved}/new-{number} {shlex.quote(name)}")
    return lines + [shlex.join(argv) for argv in bridge_plan.apply]


def _script(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sha(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(encoded(text)).hexdigest()


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _follow(bridge: str, script: str) -> None:
    program.run(("sh", str(SAVED_FOLDER / bridge / script)))


def _refuse_existing(bridge: object) -> None:
    """Refuse an existing bridge: a second change would save the result of the first one as the
    previous configuration."""
    name = _named(bridge)
    _refuse_armed()
    if exists(name):
        raise AlreadyExists(f"{name} already exists, and is left unchanged")
    record = bridge_record(name)
    if record:  # the files of now are ours: they are not what was there before
        raise OperationFailed(
            f"{name} was created on {record['interface'] or 'nothing'} and is configured, "
            f"but is not up: bring it up, or remove it with virt.bridge_remove {name}"
        )


_UNDER_WAY = (
    f"a change of this host's network is in progress, or {UNIT}.timer is rolling it back: "
    "apply this again in two minutes"
)


@contextlib.contextmanager
def _exclusive() -> Iterator[None]:
    """Prevent other changes of the host's network during the block, which would replace the saved
    files and disarm the rollback."""
    SAVED_FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with open(SAVED_FOLDER.with_suffix(".lock"), "w", encoding="utf-8") as handle:
        if not file_lock.lock(handle):
            raise OperationFailed(_UNDER_WAY)
        yield


def _refuse_armed() -> None:
    """Refuse while the rollback of another change, or of one whose minion died, may still need the
    saved files."""
    units = (f"{UNIT}.timer", f"{UNIT}.service", f"{BOOT_UNIT}.service")
    state = program.run(("systemctl", "show", "-p", "ActiveState", *units))
    if re.search("=(active|activating|deactivating)$", state, re.MULTILINE):
        raise OperationFailed(_UNDER_WAY)


def _arm(bridge: str, script: str, timeout_s: float) -> None:
    """Arm the timer that runs a script when the change has had its time, and the unit that runs it
    at the next boot.

    The unit is disabled after the timer has run the script: the operator may have configured
    another network by then.
    """
    boot = shlex.quote(str(_boot_file()))
    unarm = [f"systemctl disable {BOOT_UNIT}.service", f"rm -f {boot}"]
    # a file, because systemd-run escapes ";" and "$" in arguments in a way that systemd does not
    # parse
    by_timer = SAVED_FOLDER / bridge / f"{script}{BY_TIMER}"
    call = ("sh", str(by_timer))
    # without AccuracySec, systemd may be up to a minute late
    timer_options = (f"--on-active={FOLLOW_S + timeout_s + 30}", "--timer-property=AccuracySec=1s")
    argv = ("systemd-run", f"--unit={UNIT}", *timer_options, "--collect", *call)
    try:
        _script(by_timer, [f"sh {SAVED_FOLDER / bridge / script}", *unarm])
        program.run(argv, must=True)
        text = BOOT_TEXT.format(kept=SAVED_FOLDER / bridge, script=script, unit=BOOT_UNIT)
        _boot_file().write_text(text, encoding="utf-8")
        program.run(("systemctl", "enable", f"{BOOT_UNIT}.service"), must=True)
    except (OperationFailed, OSError) as exc:
        _disarm()
        reason = exc.text if isinstance(exc, OperationFailed) else str(exc)
        raise OperationFailed(f"the rollback could not be prepared: {reason}") from exc
    os.sync()  # also for a host that loses its power meanwhile


def _boot_file() -> Path:
    return BOOT_FOLDER / f"{BOOT_UNIT}.service"


def _disarm() -> None:
    program.run(("systemctl", "stop", f"{UNIT}.timer"))
    program.run(("systemctl", "disable", f"{BOOT_UNIT}.service"))
    _boot_file().unlink(missing_ok=True)


def _wait_until(timeout_s: float, ready: Callable[[], bool]) -> bool:
    """True as soon as the condition holds, False after the timeout."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if ready():
            return True
        time.sleep(0.5)
    return False


def _connects(probe: Probe, device: str | None) -> bool:
    """Whether a TCP connection can be opened, through the device if one is given."""
    with contextlib.suppress(OSError):
        for family, kind, protocol, _name, address in socket.getaddrinfo(
            *probe, type=socket.SOCK_STREAM
        ):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as connection:
                connection.settimeout(3)
                if device:
                    connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode()
                    )
                connection.connect(address)
                return True
    return False


def _addresses(device: str | None) -> tuple[str, ...]:
    """The global addresses of an interface, except IPv6 addresses that it chooses by itself."""
    if not device:
        return ()
    output = program.run(("ip", "-j", "addr", "show", "dev", device, "scope", "global"))
    # ip prints an empty object for an address that it omits
    infos = [info for link in json.loads(output or "[]") for info in link.get("addr_info", ())]
    return tuple(
        f"{info['local']}/{info['prefixlen']}"
        for info in infos
        if info.get("family") == "inet" or (info and not info.get("dynamic"))
    )


def _route_device(host: str) -> str | None:
    """The interface through which a host is reached."""
    with contextlib.suppress(OSError):
        address = socket.getaddrinfo(host, None)[0][4][0]
        output = program.run(("ip", "route", "get", str(address)))
        device = re.search(r"\bdev (\S+)", output)
        return device[1] if device else None
    return None


def _gateway(device: str | None) -> str | None:
    """The default gateway on an interface, or None."""
    if not device:
        return None
    output = program.run(("ip", "-4", "route", "show", "default", "dev", device))
    gateway = re.search(r"\bvia (\S+)", output)
    return gateway[1] if gateway else None


def _neighbour(gateway: str, device: str) -> bool:
    """Whether a gateway responds to ARP on an interface."""
    # a packet that need not be answered makes the kernel resolve the address; ping may be missing
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as line:
        line.settimeout(1)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        line.connect((gateway, _DISCARD))
        line.send(b"")
        line.recv(1)
    entry = program.run(("ip", "neigh", "show", gateway, "dev", device))
    return "lladdr" in entry and "FAILED" not in entry
