"""A bridge put under the host's own address, with a way back.

The host is reached over the interface that is changed. So what was there is kept, a timer
of systemd that puts it back is armed before anything changes, and is disarmed only when the
master can be reached over the bridge. Taking the bridge away again goes the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from saltvirt import places
from saltvirt.errors import InvalidInput, OperationFailed, Unsupported
from saltvirt.hostnet import program
from saltvirt.hostnet.bridge import ifcfg, ifupdown, netplan, networkd, networkmanager, ovs
from saltvirt.hostnet.bridge.plan import BridgeHost, Vlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from saltvirt.hostnet.bridge.plan import BridgePlan, Yaml


class About(TypedDict):
    """A bridge that we make: over which interface, by which port, over which VLAN of it or None.
    type: linux or ovs."""

    bridge: str
    interface: str | None
    port: str | None
    vlan: int | None
    type: str


class Made(About):
    """A bridge that we made. files: those written for it, and the SHA-256 of each."""

    files: dict[str, str | None]


# (host, port) that must be reachable
Probe = tuple[str, int]

KEPT = Path(places.STATE, "network-before")
UNIT = "salt-virt-network-back"
# netplan writes files for the two that follow it
MANAGERS = (netplan, networkmanager, networkd, ifcfg, ifupdown)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")


def there(bridge: object) -> bool:
    """True when an interface has that name."""
    return bool(program.run(("ip", "link", "show", _named(bridge))))


def ours(bridge: str) -> Made | None:
    """What was kept when we made this bridge; None when we did not."""
    try:
        made: Made = json.loads((KEPT / _named(bridge) / "made.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return made


def plan(
    bridge: object, interface: str | None, yaml: Yaml, vlan: object = None
) -> tuple[str, BridgePlan]:
    """(interface, BridgePlan). interface: default the one with the default route, else
    the only one with an address. yaml: (load, dump). vlan: the number of the VLAN of the
    interface that the bridge is over; default: over the interface itself.

    Raises InvalidInput where there is no such interface, Unsupported for a network that is managed
    in a way we do not know.
    """
    tag = None if vlan is None else _tag(vlan)
    name = _named(interface) if interface else _main_interface()
    if tag:
        made = ours(name)
        name = (made and made["interface"]) or name
    host = BridgeHost(program.run, *yaml)
    for manager in MANAGERS:
        if tag:
            found = manager.tagged(Vlan(_named(bridge), name, tag), host)
        else:
            found = manager.find(_named(bridge), name, host)
        if found:
            return name, found
    if not there(name):
        raise InvalidInput(f"this host has no interface {name}")
    raise Unsupported(
        f"{name} is configured neither by netplan, NetworkManager, systemd-networkd, wicked, "
        f"network-scripts nor ifupdown: make {bridge} over it by hand, then apply this again"
    )


def over(
    bridge: str,
    interface: str | None,
    yaml: Yaml,
    probe: Probe | None = None,
    timeout_s: float = 60,
    vlan: object = None,
) -> str:
    """Puts the bridge over the interface, or over a VLAN of it. What was done, in words.

    probe: (host, port) that must be reachable afterwards, or everything is put back.
    Raises OperationFailed when the host could not reach ``probe`` and was put back.
    """
    name, found = plan(bridge, interface, yaml, vlan)
    tag = None if vlan is None else _tag(vlan)
    if not tag:
        _refuse_vlans(name)
    port = Vlan(bridge, name, tag).port if tag else name
    about: About = {"bridge": bridge, "interface": name, "port": port, "vlan": tag, "type": "linux"}
    return _make(about, found, probe, timeout_s)


def plan_ovs(bridge: object, interface: str | None) -> BridgePlan:
    """The BridgePlan of a bridge of Open vSwitch with that port; interface None: with no port.

    Raises Unsupported for an interface with an address: nothing would move it.
    """
    return ovs.plan(
        _named(bridge), _named(interface) if interface else None, BridgeHost(program.run)
    )


def over_ovs(
    bridge: str, interface: str | None, probe: Probe | None = None, timeout_s: float = 60
) -> str:
    """Makes a bridge of Open vSwitch, with the same way back. What was done, in words."""
    found = plan_ovs(bridge, interface)
    about: About = {"bridge": bridge, "interface": interface, "port": interface, "vlan": None,
                    "type": "ovs"}  # fmt: skip
    return _make(about, found, probe, timeout_s)


def _make(about: About, found: BridgePlan, probe: Probe | None, timeout_s: float) -> str:
    bridge, port = about["bridge"], about["port"]

    def right() -> bool:
        return port in _ports(about) if port else there(bridge)

    _refuse_armed()
    _keep(about, found)
    _arm(bridge, "restore", timeout_s + 30)
    _follow(bridge, "again")
    if not _within(timeout_s, lambda: right() and _reachable(probe)):
        what = _failed(probe, right())
        _follow(bridge, "restore")
        _disarm()
        raise OperationFailed(
            f"over {bridge} the host could not {what} within {timeout_s} s, "
            f"so {about['interface'] or 'all'} was put back as it was"
        )
    _disarm()
    return f"{bridge} over {port or 'nothing'}; what was there is in {KEPT / bridge}"


def back(bridge: str, probe: Probe | None = None, timeout_s: float = 60) -> str:
    """Takes our bridge away: what was there before is there again. In words.

    Raises OperationFailed when that is no longer safe, with the reason and with nothing
    changed, and when the host could not reach ``probe``: then the bridge is there again.
    """
    made = ours(bridge)
    if made is None:
        raise OperationFailed(f"{bridge} was not made here, and is left as it is")
    for path, digest in made["files"].items():
        if _digest(Path(path)) != digest:
            raise OperationFailed(
                f"{path} was changed since {bridge} was made: remove it by hand; what was "
                f"there before is in {KEPT / bridge}"
            )
    others = set(_ports(made)) - {made["port"]}
    if others:
        raise OperationFailed(f"{bridge} is in use by {', '.join(sorted(others))}")
    if made["vlan"] is None and made["type"] == "linux":
        _refuse_vlans(made["interface"])
    _arm(bridge, "again", timeout_s + 30)
    _follow(bridge, "restore")
    if not _within(timeout_s, lambda: not there(bridge) and _reachable(probe)):
        what = _failed(probe, not there(bridge))
        _follow(bridge, "again")
        _disarm()
        raise OperationFailed(
            f"without {bridge} the host could not {what} within {timeout_s} s, "
            f"so {bridge} was put back"
        )
    _disarm()
    shutil.rmtree(KEPT / bridge, ignore_errors=True)
    return f"{made['interface'] or 'All'} is as it was before {bridge}"


def _failed(probe: Probe | None, links_are_right: bool) -> str:
    return f"reach {probe[0]}:{probe[1]}" if probe and links_are_right else "be brought up"


def _refuse_vlans(interface: str | None) -> None:
    """Bridges over its VLANs are written for the interface as it is: they would be lost."""
    made = (ours(path.name) for path in sorted(KEPT.glob("*")))
    over_it = [
        one["bridge"] for one in made if one and one["vlan"] and one["interface"] == interface
    ]
    if over_it:
        raise OperationFailed(
            f"{', '.join(over_it)} is over a VLAN of {interface}: remove it first, and create "
            "it again afterwards"
        )


def _tag(vlan: Any) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", str(vlan)) or not 1 <= int(vlan) <= 4094:
        raise InvalidInput(f"{vlan!r} is no VLAN: one of 1 to 4094 is")
    return int(vlan)


def _named(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} cannot be the name of an interface")
    return name


def _main_interface() -> str:
    """The interface of the default route; without one, the only one with an address."""
    found = re.search(r"\bdev (\S+)", program.run(("ip", "-4", "route", "show", "default")))
    if found:
        return found[1]
    lines = program.run(("ip", "-4", "-o", "addr", "show", "scope", "global")).splitlines()
    names = {line.split()[1] for line in lines}
    if len(names) != 1:
        raise InvalidInput(
            f"say which interface: {', '.join(sorted(names)) or 'none'} have addresses "
            "(libvirt:network:interface)"
        )
    return names.pop()


def _ports(about: About) -> list[str]:
    if about["type"] == "ovs":
        return ovs.ports(about["bridge"], program.run)
    output = program.run(("ip", "-j", "link", "show", "master", about["bridge"]))
    return [link["ifname"] for link in json.loads(output or "[]") if "ifname" in link]


def _keep(about: About, found: BridgePlan) -> None:
    """The files of before and of after, and a script for either way."""
    kept = KEPT / about["bridge"]
    shutil.rmtree(kept, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept.mkdir(mode=0o700)
    before = []
    for number, (name, text) in enumerate(found.files.items()):
        if Path(name).exists():
            shutil.copy2(name, kept / f"old-{number}")
            before.append(f"cp -p {kept}/old-{number} {shlex.quote(name)}")
        else:
            before.append(f"rm -f {shlex.quote(name)}")
        if text is not None:
            new = kept / f"new-{number}"
            new.write_text(text, encoding="utf-8")
            # networkd is not root, and netplan's own files are nobody else's to read
            new.chmod(Path(name).stat().st_mode & 0o777 if Path(name).exists() else 0o644)
    # ifupdown takes an interface down by the file that brought it up
    undo = [shlex.join(argv) for argv in found.undo]
    made, undone = f"{kept}/made.json", f"{kept}/undone.json"
    _script(kept / "restore", [undo[0], *before, *undo[1:], f"mv {made} {undone}"])
    _script(kept / "again", [*_changes(found, kept), f"[ -e {made} ] || mv {undone} {made}"])
    wrote = {name: _sha(text) for name, text in found.files.items()}
    (kept / "made.json").write_text(json.dumps({**about, "files": wrote}), encoding="utf-8")


def _changes(found: BridgePlan, kept: Path) -> list[str]:
    """The lines of the script that makes the bridge."""
    lines = [shlex.join(argv) for argv in found.before]
    for number, (name, text) in enumerate(found.files.items()):
        if text is None:
            lines.append(f"rm -f {shlex.quote(name)}")
        else:
            folder = shlex.quote(str(Path(name).parent))
            lines.append(f"mkdir -p {folder}")
            lines.append(f"cp -p {kept}/new-{number} {shlex.quote(name)}")
    return lines + [shlex.join(argv) for argv in found.apply]


def _script(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sha(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def _digest(path: Path) -> str | None:
    return _sha(path.read_text(encoding="utf-8")) if path.is_file() else None


def _follow(bridge: str, script: str) -> None:
    program.run(("sh", str(KEPT / bridge / script)))


def _refuse_armed() -> None:
    """A change that is under way, or whose minion died, has its way back in the files kept: they
    stay until that is over."""
    state = program.run(
        ("systemctl", "show", "-p", "ActiveState", f"{UNIT}.timer", f"{UNIT}.service")
    )
    if re.search("=(active|activating|deactivating)$", state, re.MULTILINE):
        raise OperationFailed(
            f"the network of this host is being changed, or put back by {UNIT}.timer: "
            "apply this again in two minutes"
        )


def _arm(bridge: str, script: str, after_s: float) -> None:
    call = ("sh", str(KEPT / bridge / script))
    # without the accuracy systemd may be up to a minute late
    when = (f"--on-active={after_s}", "--timer-property=AccuracySec=1s")
    argv = ("systemd-run", f"--unit={UNIT}", *when, "--collect", *call)
    try:
        program.run(argv, must=True)
    except OperationFailed as exc:
        raise OperationFailed(f"no way back could be armed: {exc.text}") from exc


def _disarm() -> None:
    program.run(("systemctl", "stop", f"{UNIT}.timer"))


def _within(timeout_s: float, ready: Callable[[], bool]) -> bool:
    """True as soon as it is so, False when it never was."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if ready():
            return True
        time.sleep(0.5)
    return False


def _reachable(probe: Probe | None) -> bool:
    """True when there is nothing to reach."""
    if not probe:
        return True
    with contextlib.suppress(OSError), socket.create_connection(probe, timeout=3):
        return True
    return False
