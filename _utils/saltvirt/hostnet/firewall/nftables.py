"""nftables: a table of its own, which drops packets to closed ports.

A port that another table drops stays closed even if this table accepts it. Accepting rules are
therefore inserted at the start of foreign chains, with the name of Salt Virt as their comment.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from saltvirt.hostnet.firewall.rules import NAME, format_ports, of_family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from saltvirt.hostnet.firewall.rules import Pair, Rules, Run

# (family, table, chain)
Chain = tuple[str, str, str]

TABLE = "salt_virt"
# tables that iptables and libvirt manage
_OF_PROGRAMS = {TABLE, "libvirt_network"}


def runs(run: Run) -> bool:
    """Whether nft is installed; the kernel supports nftables then."""
    return bool(run(("nft", "--version")))


def expected_rules(rules: Rules) -> list[str]:
    """The lines of the table."""
    lines = [f"table inet {TABLE} {{", "  chain input {"]
    lines += ["    type filter hook input priority -10; policy accept;", '    iifname "lo" accept']
    # migration ports are ephemeral ports of the host's own connections, too
    lines.append("    ct state established,related accept")
    lines += [f"    {accept}" for accept in _accepts(rules)]
    for pairs in filter(None, ((*rules.open, *rules.agent), rules.shut)):
        lines.append(f"    tcp dport {{ {_set(pairs)} }} drop")
    return [*lines, "  }", "}"]


def listing(run: Run) -> str:
    """The current table, the rules in foreign chains, and these chains: a chain that is added later
    must get the rules, too."""
    own_table = run(("nft", "-s", "list", "table", "inet", TABLE))
    foreign_rules = [rule[:3] for rule in handles(run(("nft", "-j", "-a", "list", "ruleset")))]
    chains = foreign(run(("nft", "-j", "list", "chains")))
    return own_table + json.dumps([foreign_rules, chains]) if own_table else ""


def script(run: Run, rules: Rules) -> str:
    """The shell script that applies the rules, also at boot, when foreign chains may be missing."""
    fresh = [f"table inet {TABLE}", f"delete table inet {TABLE}", *expected_rules(rules)]
    chains = foreign(run(("nft", "-j", "list", "chains")))
    foreign_lines = [f"nft {shlex.quote(line)} || true" for line in in_front(chains, rules)]
    return "\n".join(["nft -f - <<'END' || exit 1", *fresh, "END", *foreign_lines]) + "\n"


def apply(run: Run, rules: Rules) -> None:
    """Replace the rules of Salt Virt; the table in one transaction."""
    _take_from_others(run)
    run(("sh", "-s"), script(run, rules), must=True)


def remove(run: Run) -> None:
    """Remove the rules of Salt Virt, if there are any."""
    _take_from_others(run)
    run(("nft", "-f", "-"), f"table inet {TABLE}\ndelete table inet {TABLE}\n")


def foreign(output: str) -> list[Chain]:
    """Foreign input chains: (family, table, chain).

    output: of ``nft -j list chains``. Chains of iptables are omitted.
    """
    chains = []
    for item in json.loads(output or '{"nftables": []}')["nftables"]:
        chain = item.get("chain", {})
        if (
            (chain.get("hook"), chain.get("type")) == ("input", "filter")
            and chain["family"] in ("inet", "ip", "ip6")
            and chain["table"] not in _OF_PROGRAMS
            and (chain["family"] == "inet" or chain["name"] != "INPUT")
        ):
            chains.append((chain["family"], chain["table"], chain["name"]))
    return chains


def in_front(chains: Iterable[Chain], rules: Rules) -> Iterator[str]:
    """The commands that insert accepting rules into foreign chains."""
    for family, table, chain in chains:
        for accept in _accepts(rules):
            if family == "inet" or accept.startswith(f"{family} "):
                yield f'insert rule {family} {table} {chain} {accept} comment "{NAME}"'


def handles(output: str) -> list[tuple[str, str, str, int]]:
    """The rules of Salt Virt in foreign chains: (family, table, chain, handle).

    output: of ``nft -j -a list ruleset``.
    """
    rules = []
    for item in json.loads(output or '{"nftables": []}')["nftables"]:
        rule = item.get("rule", {})
        if rule.get("comment") == NAME and rule["table"] != TABLE:
            rules.append((rule["family"], rule["table"], rule["chain"], rule["handle"]))
    return rules


def _take_from_others(run: Run) -> None:
    for family, table, chain, handle in handles(run(("nft", "-j", "-a", "list", "ruleset"))):
        run(("nft", "delete", "rule", family, table, chain, "handle", str(handle)))


def _accepts(rules: Rules) -> Iterator[str]:
    for version, word in ((4, "ip"), (6, "ip6")):
        for pairs, open_to in rules.accepted():
            hosts = ", ".join(of_family(open_to, version))
            if hosts:
                yield f"{word} saddr {{ {hosts} }} tcp dport {{ {_set(pairs)} }} accept"


def _set(pairs: Iterable[Pair]) -> str:
    return ", ".join(format_ports(pair, "-") for pair in pairs)
