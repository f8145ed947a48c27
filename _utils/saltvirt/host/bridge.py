"""A bridge put under the host's own address, with a way back.

The host is reached over the interface that is changed. So what was there is kept, a timer
of systemd that puts it back is armed before anything changes, and is disarmed only when the
master can be reached over the bridge.
"""

import contextlib
import json
import re
import shlex
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from saltvirt.errors import InvalidInput, OperationFailed, Unsupported

KEPT = Path("/var/lib/salt-virt/network-before")
UNIT = "salt-virt-network-back"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")


@dataclass(frozen=True)
class Plan:
    """files: path to new text. before, apply: commands (argument lists) before and after they
    are written; undo: the way back, its first command before they are as they were."""

    files: dict
    before: tuple
    apply: tuple
    undo: tuple


def plan_networkd(bridge, interface, path, text, mac):
    """For systemd-networkd. path, text: the .network file that configures the interface now."""
    folder = Path(path).parent
    first = f"{folder}/0-{bridge}"  # networkd takes the first file that matches
    rest = re.sub(r"(?ms)^\[Match\]\n.*?(?=^\[|\Z)", "", text)
    return Plan(
        files={
            f"{first}.netdev": (
                f"[NetDev]\nName={bridge}\nKind=bridge\nMACAddress={mac}\n\n"
                "[Bridge]\nSTP=no\nForwardDelaySec=0\n"
            ),
            f"{first}.network": f"[Match]\nName={bridge}\n\n{rest}",
            f"{first}-port.network": (f"[Match]\nName={interface}\n\n[Network]\nBridge={bridge}\n"),
        },
        before=(),
        apply=(("networkctl", "reload"), ("networkctl", "reconfigure", interface)),
        undo=(
            ("ip", "link", "delete", bridge),
            ("networkctl", "reload"),
            ("networkctl", "reconfigure", interface),
        ),
    )


def plan_ifupdown(bridge, interface, path, text):
    """For ifupdown. path, text: the file with the interface's stanza.

    Raises Unsupported when the stanza is not one that we understand.
    """
    stanza = re.compile(rf"^iface[ \t]+{re.escape(interface)}[ \t]+inet[ \t]", re.MULTILINE)
    if len(stanza.findall(text)) != 1 or re.search(r"bridge[_-]ports", text):
        raise Unsupported(
            f"{path} does not have one plain 'iface {interface} inet …': do it by hand"
        )
    ports = (
        f"    pre-up ip link show {bridge} >/dev/null 2>&1 || ip link add {bridge} type bridge\n"
        f"    pre-up ip link set {interface} master {bridge} up\n"
        f"    post-down ip link delete {bridge}\n"
    )
    head = stanza.search(text)
    line_end = text.index("\n", head.end()) + 1 if "\n" in text[head.end() :] else len(text)
    first = text[head.start() : line_end].replace(interface, bridge, 1)
    changed = text[: head.start()] + first.rstrip("\n") + "\n" + ports + text[line_end:]
    changed = re.sub(
        rf"^((?:auto|allow-hotplug)[ \t].*?)\b{re.escape(interface)}\b",
        rf"\1{bridge}",
        changed,
        flags=re.MULTILINE,
    )
    changed = changed.rstrip("\n") + f"\n\niface {interface} inet manual\n"
    return Plan(
        files={str(path): changed},
        before=(("ifdown", "--force", interface),),
        apply=(("ifup", bridge),),
        undo=(("ifdown", "--force", bridge), ("ifup", interface)),
    )


def over(bridge, interface=None, probe=None, timeout_s=60):
    """Puts the bridge over the interface. What was done, in words.

    interface: default the one with the default route, else the only one with an address.
    probe: (host, port) that must be reachable afterwards, or everything is put back.
    Raises Unsupported for a network that is managed in a way we do not know, and
    OperationFailed when the host could not reach ``probe`` and was put back.
    """
    for name in (bridge, *([interface] if interface else [])):
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"{name!r} cannot be the name of an interface")
    interface = interface or _main_interface()
    plan = _plan(bridge, interface)
    _keep(plan)
    _arm(timeout_s + 30)
    for argv in plan.before:
        _run(argv)
    for path, text in plan.files.items():
        Path(path).write_text(text, encoding="utf-8")
    for argv in plan.apply:
        _run(argv)
    if probe and not _reachable(probe, timeout_s):
        _run(("sh", str(KEPT / "restore")))
        _disarm()
        raise OperationFailed(
            f"over {bridge} the host could not reach {probe[0]}:{probe[1]} within {timeout_s} s, "
            f"so {interface} was put back as it was"
        )
    _disarm()
    return f"{bridge} over {interface}; what was there is in {KEPT}"


def _plan(bridge, interface):
    found = re.search(r"Network File: (\S+)", _run(("networkctl", "status", interface)))
    if found and found[1].startswith("/etc/systemd/network/"):
        # not from /sys, which in a container can be another machine's
        mac = json.loads(_run(("ip", "-j", "link", "show", interface)))[0]["address"]
        text = Path(found[1]).read_text(encoding="utf-8")
        return plan_networkd(bridge, interface, found[1], text, mac)
    if shutil.which("ifup"):
        folder = Path("/etc/network")
        for path in (folder / "interfaces", *sorted(folder.glob("interfaces.d/*"))):
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            if re.search(rf"^iface[ \t]+{re.escape(interface)}[ \t]", text, re.MULTILINE):
                return plan_ifupdown(bridge, interface, path, text)
    raise Unsupported(
        f"{interface} is configured neither in /etc/systemd/network nor in "
        f"/etc/network/interfaces: make {bridge} over it with what manages it (netplan, "
        "NetworkManager, wicked), then apply this again"
    )


def _main_interface():
    """The interface of the default route; without one, the only one with an address."""
    found = re.search(r"\bdev (\S+)", _run(("ip", "-4", "route", "show", "default")))
    if found:
        return found[1]
    lines = _run(("ip", "-4", "-o", "addr", "show", "scope", "global")).splitlines()
    names = {line.split()[1] for line in lines}
    if len(names) != 1:
        raise InvalidInput(
            f"say which interface: {', '.join(sorted(names)) or 'none'} have addresses "
            "(libvirt:network:interface)"
        )
    return names.pop()


def _keep(plan):
    """Copies of the files, and the script that puts them back."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True, mode=0o700)
    lines = []
    for number, name in enumerate(plan.files):
        if Path(name).exists():
            shutil.copy2(name, KEPT / str(number))
            lines.append(f"cp -p {KEPT / str(number)} {shlex.quote(name)}")
        else:
            lines.append(f"rm -f {shlex.quote(name)}")
    # ifupdown takes an interface down by the file that brought it up
    commands = [shlex.join(argv) for argv in plan.undo]
    lines = [commands[0], *lines, *commands[1:]]
    (KEPT / "restore").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _arm(after_s):
    restore = ("sh", str(KEPT / "restore"))
    argv = ("systemd-run", f"--unit={UNIT}", f"--on-active={after_s}", "--collect", *restore)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OperationFailed(f"no way back could be armed: {done.stderr.strip()}")


def _disarm():
    _run(("systemctl", "stop", f"{UNIT}.timer"))


def _run(argv):
    """What it printed; its failure shows in whether the network works."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout
    return ""


def _reachable(probe, timeout_s):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(probe, timeout=3):
            return True
        time.sleep(0.5)
    return False
