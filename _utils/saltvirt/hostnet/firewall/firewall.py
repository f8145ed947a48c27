"""The ports of a hypervisor: open to other hypervisors, closed to everyone else.

The applied rules are stored with the firewall's own listing afterwards, so that later changes can
be detected for every firewall.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput, OperationFailed
from saltvirt.hostnet import program
from saltvirt.hostnet.firewall import firewalld, iptables, nftables, ufw
from saltvirt.hostnet.firewall.rules import Rules, address, ports
from saltvirt.system import atomic_file, paths

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

STATE_FILE = Path(paths.STATE, "firewall.json")
SCRIPT = STATE_FILE.with_suffix(".sh")
UNIT = Path("/etc/systemd/system/salt-virt-firewall.service")
# the first active one is used
KINDS = {"firewalld": firewalld, "ufw": ufw, "iptables": iptables, "nftables": nftables}
# the others restore their rules at boot
_NEEDS_UNIT = ("iptables", "nftables")
_UNIT = f"""\
[Unit]
Description=Ports of this hypervisor for other hypervisors alone
After=nftables.service iptables.service ip6tables.service netfilter-persistent.service
PartOf=nftables.service iptables.service netfilter-persistent.service
ReloadPropagatedFrom=nftables.service iptables.service netfilter-persistent.service
Before=libvirtd.service virtproxyd.service network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh {SCRIPT}
ExecReload=/bin/sh {SCRIPT}

[Install]
WantedBy=multi-user.target
"""


def rules(
    hosts: Collection[Any],
    opened: Collection[Any],
    shut: Collection[Any],
    agent: Any = None,
    masters: Collection[Any] = (),
) -> Rules:
    """The Rules. hosts, masters: names, addresses or networks; opened, shut: ports such as
    49152-49215; agent: the port of high availability's agent, if there is one.

    Raises InvalidInput for a name without an address.
    """
    lists = {"hosts": hosts, "opened": opened, "shut": shut, "masters": masters}
    for key, values in lists.items():
        if not isinstance(values, (list, tuple)) or not all(
            isinstance(o, (str, int)) for o in values
        ):
            raise InvalidInput(f"{key} must be a list, not {values!r}")
    return Rules(
        open=tuple(ports(text) for text in opened),
        shut=tuple(ports(text) for text in shut),
        hosts=_all(hosts, "other hypervisor", "hosts"),
        agent=(ports(agent),) if agent else (),
        masters=_all(masters, "master", "masters") if agent else (),
    )


def _all(hosts: Collection[Any], role: str, key: str) -> tuple[str, ...]:
    return tuple(
        sorted({ip_address for host in hosts for ip_address in _addresses(str(host), role, key)})
    )


def kind(requested: object = None) -> str:
    """The requested firewall, or else the active one."""
    if requested:
        if not isinstance(requested, str) or requested not in KINDS:
            raise InvalidInput(f"firewall {requested!r}: use one of {', '.join(KINDS)}")
        return requested
    for name, firewall in KINDS.items():
        if firewall.runs(program.run):
            return name
    raise InvalidInput("this host has no firewall: install nftables, iptables, ufw or firewalld")


def differs(name: str, firewall_rules: Rules) -> bool:
    """Whether the rules differ from those that were applied."""
    state = _read_state()
    expected = KINDS[name].expected_rules(firewall_rules)
    same = state.get("kind") == name and state.get("wanted") == expected
    return not same or KINDS[name].listing(program.run) != state["listing"]


def apply(name: str, firewall_rules: Rules) -> None:
    """Apply the rules, and restore them after a reboot."""
    before = _read_state().get("kind")
    if before and before != name:
        KINDS[before].remove(program.run)
    state = {"kind": name, "wanted": KINDS[name].expected_rules(firewall_rules), "listing": None}
    _write_state(state)  # before the rules: they can be removed if the process dies now
    KINDS[name].apply(program.run, firewall_rules)
    _install_unit(name, firewall_rules)
    listing = KINDS[name].listing(program.run)
    if not listing:
        raise OperationFailed(f"{name} has not applied the rules")
    _write_state({**state, "listing": listing})


def _write_state(note: Mapping[str, Any]) -> None:
    STATE_FILE.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(STATE_FILE, json.dumps(note).encode(), mode=0o644)


def _install_unit(name: str, firewall_rules: Rules) -> None:
    """Apply the rules at boot by systemd, if the firewall does not restore them."""
    if name not in _NEEDS_UNIT:
        _forget_start()
        return
    SCRIPT.write_text(KINDS[name].script(program.run, firewall_rules), encoding="utf-8")
    UNIT.write_text(_UNIT, encoding="utf-8")
    program.run(("systemctl", "daemon-reload"))
    # if it is started, it is restarted together with the firewall, whose restart removes all rules
    program.run(("systemctl", "enable", "--now", UNIT.name), must=True)


def remove() -> bool:
    """Remove the rules with the firewall that applied them. True if there were any."""
    name = _read_state().get("kind")
    if not name:
        return False
    KINDS[name].remove(program.run)
    _forget_start()
    STATE_FILE.unlink()
    return True


def has_rules() -> bool:
    """Whether rules of Salt Virt exist."""
    return bool(_read_state())


def _forget_start() -> None:
    if UNIT.exists():
        program.run(("systemctl", "disable", "--now", UNIT.name))
        UNIT.unlink()
        program.run(("systemctl", "daemon-reload"))
    SCRIPT.unlink(missing_ok=True)


def _read_state() -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads(STATE_FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state


def _addresses(host: str, role: str, key: str) -> Collection[str]:
    try:
        return [address(host)]
    except InvalidInput:
        pass
    try:
        results = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as exc:  # UnicodeError: not a valid name
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise InvalidInput(
            f"the {role} {host} cannot be resolved on this host ({reason}): add it to DNS "
            f"or /etc/hosts, or set libvirt:firewall:{key} to addresses"
        ) from exc
    return {address(str(item[4][0]).partition("%")[0]) for item in results}
