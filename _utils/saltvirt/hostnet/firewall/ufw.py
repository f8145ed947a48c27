"""ufw: rules before all others, with the name of Salt Virt as their comment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.hostnet.firewall.rules import NAME, format_ports

if TYPE_CHECKING:
    from saltvirt.hostnet.firewall.rules import Rules, Run


def runs(run: Run) -> bool:
    """Whether ufw is enabled."""
    return run(("ufw", "status")).startswith("Status: active")


def expected_rules(rules: Rules) -> list[str]:
    """The rules in their order, in the syntax of ufw."""
    lines = []
    for pairs, hosts in rules.accepted():
        for pair in pairs:
            port = format_ports(pair, ":")
            lines += [f"allow from {host} to any port {port} proto tcp" for host in hosts]
    for pair in rules.closed:
        lines.append(f"deny {format_ports(pair, ':')}/tcp")
    return lines


def listing(run: Run) -> str:
    """The current rules of Salt Virt."""
    return "\n".join(_our_rules(run))


def apply(run: Run, rules: Rules) -> None:
    """Replace the rules of Salt Virt."""
    remove(run)
    for rule in reversed(expected_rules(rules)):
        run(("ufw", "prepend", *rule.split(), "comment", NAME), must=True)


def remove(run: Run) -> None:
    """Remove the rules of Salt Virt."""
    for rule in _our_rules(run):
        run(("ufw", "delete", *rule.split()))


def _our_rules(run: Run) -> list[str]:
    our_rules = []
    for line in run(("ufw", "show", "added")).splitlines():
        rule, _, comment = line.strip().partition(" comment ")
        if comment.strip("'\"") == NAME:
            our_rules.append(rule.removeprefix("ufw "))
    return our_rules
