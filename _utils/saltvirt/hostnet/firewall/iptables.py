"""iptables: a chain of its own, which INPUT calls first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from saltvirt.hostnet.firewall.rules import format_ports, of_family

if TYPE_CHECKING:
    from saltvirt.hostnet.firewall.rules import Pair, Rules, Run

CHAIN = "SALT_VIRT"
_PROGRAMS = (("iptables", 4), ("ip6tables", 6))
# seconds to wait for the lock of another program, as at boot
_WAIT = ("-w", "30")
# libvirt, Salt Virt and fail2ban jump to their own chains; that does not mean that iptables is in
# use
_JUMP = re.compile(r"-A INPUT .*-j (?:LIBVIRT_INP|SALT_VIRT|f2b-\S+)")


def runs(run: Run) -> bool:
    """Whether iptables is in use: there are rules for this host, or a policy."""
    lines = run(("iptables", *_WAIT, "-S", "INPUT")).splitlines()
    return any(line != "-P INPUT ACCEPT" and not _JUMP.match(line) for line in lines)


def expected_rules(rules: Rules) -> list[str]:
    """The input of ``iptables-restore --noflush`` and ``ip6tables-restore``, which replaces the
    chain."""
    return [line for _program, version in _PROGRAMS for line in _table(rules, version)]


def listing(run: Run) -> str:
    """The current chain and the rules that jump to it."""
    lines = []
    for program, _version in _PROGRAMS:
        lines.append(run((program, *_WAIT, "-S", CHAIN)))
        jumps = run((program, *_WAIT, "-S", "INPUT")).splitlines()
        lines += [line for line in jumps if CHAIN in line]
    return "\n".join(lines) if lines[0] else ""


def script(run: Run, rules: Rules) -> str:
    """The shell script that applies the rules, also at boot."""
    lines = []
    for program, version in _PROGRAMS:
        if run((program, "--version")):
            way_in = f"INPUT -j {CHAIN}"
            wait = " ".join(_WAIT)
            restore = f"{program}-restore {wait} --noflush <<'END' || exit 1"
            lines += [restore, *_table(rules, version), "END"]
            exists_test = f"{program} {wait} -C {way_in} 2>/dev/null"
            lines.append(f"{exists_test} || {program} {wait} -I {way_in}")
    return "\n".join(lines) + "\n"


def apply(run: Run, rules: Rules) -> None:
    """Replace the rules of Salt Virt."""
    run(("sh", "-s"), script(run, rules), must=True)


def remove(run: Run) -> None:
    """Remove the rules of Salt Virt."""
    for program, _version in _PROGRAMS:
        call = (program, *_WAIT)
        if run((*call, "-S", CHAIN)):
            if f"-A INPUT -j {CHAIN}" in run((*call, "-S", "INPUT")):
                run((*call, "-D", "INPUT", "-j", CHAIN))
            run((*call, "-F", CHAIN))
            run((*call, "-X", CHAIN))


def _table(rules: Rules, version: int) -> list[str]:
    lines = ["*filter", f":{CHAIN} - [0:0]", f"-A {CHAIN} -i lo -j RETURN"]
    # migration ports are ephemeral ports of the host's own connections, too
    lines.append(f"-A {CHAIN} -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN")
    for pairs, hosts in rules.accepted():
        lines += [
            f"-A {CHAIN} -s {host} -p tcp -m tcp --dport {_ports(pair)} -j ACCEPT"
            for pair in pairs
            for host in of_family(hosts, version)
        ]
    for pair in rules.closed:
        lines.append(f"-A {CHAIN} -p tcp -m tcp --dport {_ports(pair)} -j DROP")
    return [*lines, "COMMIT"]


def _ports(pair: Pair) -> str:
    return format_ports(pair, ":")
