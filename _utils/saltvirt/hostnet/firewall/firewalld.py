"""firewalld: rich rules in every active zone, identified by their priorities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.hostnet.firewall.rules import format_ports, of_family

if TYPE_CHECKING:
    from saltvirt.hostnet.firewall.rules import Rules, Run

_ACCEPT, _DROP = -16514, -16513  # before whatever else the zone has
_OF_LIBVIRT = "libvirt"


def runs(run: Run) -> bool:
    """Whether firewalld runs."""
    return run(("firewall-cmd", "--state")).strip() == "running"


def expected_rules(rules: Rules) -> list[str]:
    """The rich rules of each zone."""
    rich_rules = []
    for version in (4, 6):
        for pairs, hosts in rules.accepted():
            rich_rules += [
                f'rule priority="{_ACCEPT}" family="ipv{version}" source address="{host}" '
                f'port port="{format_ports(pair, "-")}" protocol="tcp" accept'
                for host in of_family(hosts, version)
                for pair in pairs
            ]
    for pair in rules.closed:
        rich_rules.append(
            f'rule priority="{_DROP}" port port="{format_ports(pair, "-")}" protocol="tcp" drop'
        )
    return rich_rules


def listing(run: Run) -> str:
    """The rules of Salt Virt by zone, at runtime and permanent, and the active zones: a zone that
    becomes active later must get the rules, too."""
    lines, used = [], zones(run)
    for zone in used:
        for options in ((), ("--permanent",)):
            lines += [f"{zone} {rule}" for rule in sorted(_our_rules(run, zone, options))]
    return "\n".join([*lines, *used]) if lines else ""


def apply(run: Run, rules: Rules) -> None:
    """Replace the rules of Salt Virt, at runtime and permanently, without a reload."""
    remove(run)
    for zone in zones(run):
        for options in ((), ("--permanent",)):
            for rule in expected_rules(rules):
                add = ("firewall-cmd", *options, f"--zone={zone}", f"--add-rich-rule={rule}")
                run(add, must=True)


def remove(run: Run) -> None:
    """Remove the rules of Salt Virt, also from zones that are no longer active."""
    for options in ((), ("--permanent",)):
        for zone in run(("firewall-cmd", *options, "--get-zones")).split():
            for rule in _our_rules(run, zone, options):
                run(("firewall-cmd", *options, f"--zone={zone}", f"--remove-rich-rule={rule}"))


def zones(run: Run) -> list[str]:
    """The default zone and those with an interface or a source, except libvirt's own."""
    lines = run(("firewall-cmd", "--get-active-zones")).splitlines()
    active = {line.split()[0] for line in lines if line[:1].strip()}
    active.add(run(("firewall-cmd", "--get-default-zone")).strip())
    return sorted(zone for zone in active if zone and not zone.startswith(_OF_LIBVIRT))


def _our_rules(run: Run, zone: str, options: tuple[str, ...]) -> list[str]:
    output = run(("firewall-cmd", *options, f"--zone={zone}", "--list-rich-rules"))
    marks = [f'priority="{number}"' for number in (_ACCEPT, _DROP)]
    return [line for line in output.splitlines() if any(mark in line for mark in marks)]
