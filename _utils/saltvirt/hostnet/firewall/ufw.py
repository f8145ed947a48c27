"""ufw: rules in front of all others, with our name as their comment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.hostnet.firewall.rules import NAME, written

if TYPE_CHECKING:
    from saltvirt.hostnet.firewall.rules import Rules, Run


def runs(run: Run) -> bool:
    """True while ufw is enabled."""
    return run(("ufw", "status")).startswith("Status: active")


def wanted(rules: Rules) -> list[str]:
    """The rules in the order in which they stand, in ufw's words."""
    found = []
    for pairs, hosts in rules.accepted():
        for pair in pairs:
            port = written(pair, ":")
            found += [f"allow from {host} to any port {port} proto tcp" for host in hosts]
    for pair in rules.closed:
        found.append(f"deny {written(pair, ':')}/tcp")
    return found


def listing(run: Run) -> str:
    """Our rules that there are now."""
    return "\n".join(_ours(run))


def apply(run: Run, rules: Rules) -> None:
    """Replaces what there was of ours."""
    remove(run)
    for rule in reversed(wanted(rules)):
        run(("ufw", "prepend", *rule.split(), "comment", NAME), must=True)


def remove(run: Run) -> None:
    """Takes away all of ours."""
    for rule in _ours(run):
        run(("ufw", "delete", *rule.split()))


def _ours(run: Run) -> list[str]:
    found = []
    for line in run(("ufw", "show", "added")).splitlines():
        words, _, comment = line.strip().partition(" comment ")
        if comment.strip("'\"") == NAME:
            found.append(words.removeprefix("ufw "))
    return found
