"""The ports of a hypervisor: open to the other hypervisors, shut to everybody else.

What was done is kept beside how it looked afterwards, so that a later look tells whether
somebody changed it, in every firewall's own words.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saltvirt import places
from saltvirt.errors import InvalidInput, OperationFailed
from saltvirt.hostnet import program
from saltvirt.hostnet.firewall import firewalld, iptables, nftables, ufw
from saltvirt.hostnet.firewall.rules import Rules, address, ports

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

KEPT = Path(places.STATE, "firewall.json")
SCRIPT = KEPT.with_suffix(".sh")
UNIT = Path("/etc/systemd/system/salt-virt-firewall.service")
# the first that runs is used
KINDS = {"firewalld": firewalld, "ufw": ufw, "iptables": iptables, "nftables": nftables}
# the others keep their rules over a start of the machine by themselves
_AT_START = ("iptables", "nftables")
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

    Raises InvalidInput for a name that has no address.
    """
    lists = {"hosts": hosts, "opened": opened, "shut": shut, "masters": masters}
    for what, given in lists.items():
        if not isinstance(given, (list, tuple)) or not all(
            isinstance(o, (str, int)) for o in given
        ):
            raise InvalidInput(f"{what} must be a list, not {given!r}")
    return Rules(
        open=tuple(ports(text) for text in opened),
        shut=tuple(ports(text) for text in shut),
        hosts=_all(hosts, "other hypervisor", "hosts"),
        agent=(ports(agent),) if agent else (),
        masters=_all(masters, "master", "masters") if agent else (),
    )


def _all(hosts: Collection[Any], what: str, key: str) -> tuple[str, ...]:
    return tuple(sorted({one for host in hosts for one in _addresses(str(host), what, key)}))


def kind(asked: object = None) -> str:
    """The firewall that runs here, or the one that is wished for."""
    if asked:
        if not isinstance(asked, str) or asked not in KINDS:
            raise InvalidInput(f"firewall {asked!r}: use one of {', '.join(KINDS)}")
        return asked
    for name, firewall in KINDS.items():
        if firewall.runs(program.run):
            return name
    raise InvalidInput("no firewall is here: install nftables, iptables, ufw or firewalld")


def differs(name: str, wanted: Rules) -> bool:
    """True unless the rules are there as we made them."""
    kept = _kept()
    same = kept.get("kind") == name and kept.get("wanted") == KINDS[name].wanted(wanted)
    return not same or KINDS[name].listing(program.run) != kept["listing"]


def apply(name: str, wanted: Rules) -> None:
    """Makes the rules, and keeps them over a start of the machine."""
    before = _kept().get("kind")
    if before and before != name:
        KINDS[before].remove(program.run)
    note = {"kind": name, "wanted": KINDS[name].wanted(wanted), "listing": None}
    _keep(note)  # whoever dies now has made rules that can be taken away
    KINDS[name].apply(program.run, wanted)
    _at_start(name, wanted)
    made = KINDS[name].listing(program.run)
    if not made:
        raise OperationFailed(f"{name} has none of the rules that it was given")
    _keep({**note, "listing": made})


def _keep(note: Mapping[str, Any]) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    part = KEPT.with_suffix(".new")
    part.write_text(json.dumps(note), encoding="utf-8")
    part.replace(KEPT)


def _at_start(name: str, wanted: Rules) -> None:
    """Has systemd make the rules when the machine starts, where the firewall does not."""
    if name not in _AT_START:
        _forget_start()
        return
    SCRIPT.write_text(KINDS[name].script(program.run, wanted), encoding="utf-8")
    UNIT.write_text(_UNIT, encoding="utf-8")
    program.run(("systemctl", "daemon-reload"))
    # started, it is restarted with the firewall whose restart takes all rules away
    program.run(("systemctl", "enable", "--now", UNIT.name), must=True)


def remove() -> bool:
    """Takes our rules away, with which firewall they ever were made. True if there were any."""
    name = _kept().get("kind")
    if not name:
        return False
    KINDS[name].remove(program.run)
    _forget_start()
    KEPT.unlink()
    return True


def made() -> bool:
    """True when there are rules of ours."""
    return bool(_kept())


def _forget_start() -> None:
    if UNIT.exists():
        program.run(("systemctl", "disable", "--now", UNIT.name))
        UNIT.unlink()
        program.run(("systemctl", "daemon-reload"))
    SCRIPT.unlink(missing_ok=True)


def _kept() -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept


def _addresses(host: str, what: str, key: str) -> Collection[str]:
    try:
        return [address(host)]
    except InvalidInput:
        pass
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as exc:  # the latter: it can be no name
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise InvalidInput(
            f"the {what} {host} has no address here ({why}): it must be in DNS or /etc/hosts, "
            f"or set libvirt:firewall:{key} to addresses"
        ) from exc
    return {address(str(item[4][0]).partition("%")[0]) for item in found}
