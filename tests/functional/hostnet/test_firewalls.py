"""The rules of each firewall as it lists them: created, replaced, and removed without other rules.
nft and iptables are real, in a network namespace; ufw and firewalld are simulated."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from saltvirt.hostnet import program
from saltvirt.hostnet.firewall import firewalld, iptables, nftables, ufw
from saltvirt.hostnet.firewall.rules import Rules

SPACE = f"salt-virt-rules-{os.getpid()}"
PEER = f"salt-virt-peer-{os.getpid()}"
RULES = Rules(
    open=((16514, 16514), (49152, 49215)), shut=((16509, 16509),), hosts=("10.0.0.7", "fd00::/64")
)
AGENT = Rules(
    open=((16514, 16514),), shut=((5900, 5901),), hosts=("10.0.0.7",), agent=((16516, 16516),),
    masters=("10.0.0.1", "fd00::1"),
)  # fmt: skip
OTHER = Rules(open=((16514, 16514),), shut=(), hosts=("10.0.0.8",))


@pytest.fixture
def run():
    """``program.run`` in a network namespace of its own."""
    missing = [tool for tool in ("ip", "nft", "iptables", "ip6tables") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"no {missing[0]}")
    subprocess.run(["ip", "netns", "add", SPACE], check=True)
    inside = ("ip", "netns", "exec", SPACE)
    try:
        yield lambda argv, *more, **options: program.run((*inside, *argv), *more, **options)
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], check=True)


OTHERS = """
table inet filter {
  chain input {
    type filter hook input priority 0; policy drop;
    tcp dport 22 accept
  }
  chain forward {
    type filter hook forward priority 0; policy accept;
  }
}
table ip six {
  chain in {
    type filter hook input priority 5;
  }
}
table ip6 six {
  chain in {
    type filter hook input priority 5;
  }
}
"""


def test_nftables_has_a_table_and_a_way_through_those_of_others(run):
    run(("nft", "-f", "-"), OTHERS, must=True)
    before = run(("nft", "list", "ruleset"))
    assert nftables.runs(run)
    assert nftables.listing(run) == ""
    nftables.apply(run, RULES)
    own = run(("nft", "list", "table", "inet", "salt_virt"))
    assert "ip saddr 10.0.0.7 tcp dport { 16514, 49152-49215 } accept" in own
    assert "ip6 saddr fd00::/64 tcp dport { 16514, 49152-49215 } accept" in own
    assert own.index("accept") < own.index("tcp dport { 16514, 49152-49215 } drop")
    assert "tcp dport 16509 drop" in own
    theirs = run(("nft", "list", "chain", "inet", "filter", "input"))
    assert theirs.count('comment "salt-virt"') == 2
    assert theirs.index("salt-virt") < theirs.index("tcp dport 22")
    four, six = (run(("nft", "list", "table", family, "six")) for family in ("ip", "ip6"))
    assert ("10.0.0.7" in four, "fd00::" in four) == (True, False)
    assert ("10.0.0.7" in six, "fd00::" in six) == (False, True)
    made = nftables.listing(run)
    nftables.apply(run, RULES)
    assert nftables.listing(run) == made
    later = "table inet later { chain input { type filter hook input priority 9; policy drop; }; }"
    run(("nft", "-f", "-"), later, must=True)
    assert nftables.listing(run) != made, "the new chain has none of our rules"
    run(("nft", "delete", "table", "inet", "later"), must=True)
    assert nftables.listing(run) == made
    nftables.apply(run, OTHER)
    assert "10.0.0.7" not in run(("nft", "list", "ruleset"))
    nftables.remove(run)
    assert run(("nft", "list", "ruleset")) == before


@pytest.mark.parametrize("firewall", [firewalld, iptables, nftables, ufw])
def test_the_port_of_an_agent_is_for_masters_too_and_for_nobody_else(firewall):
    wanted = [one for one in firewall.expected_rules(AGENT) if "16516" in one]
    words = " ".join(wanted)
    assert all(host in words for host in ("10.0.0.7", "10.0.0.1", "fd00::1"))
    shut = [one for one in wanted if "drop" in one.lower() or "deny" in one]
    assert shut == [one for one in wanted if not re.search(r"10\.0|fd00", one)] != []
    assert not any(
        "10.0.0.1" in one for one in firewall.expected_rules(AGENT) if "16516" not in one
    )


def test_nft_and_iptables_take_the_rules_of_an_agent(run):
    for firewall in (nftables, iptables):
        firewall.apply(run, AGENT)
        assert firewall.listing(run).count("16516") >= 3


def test_iptables_waits_for_the_lock_of_another_program():
    """Else a start of the machine, or a removal, could leave it undone without a word."""
    called = []

    def record(argv, text=None, must=False):
        called.append([*argv])
        return f"-A INPUT -j {iptables.CHAIN}\n"

    lines = iptables.script(record, RULES).splitlines()
    called.clear()
    iptables.runs(record)
    iptables.listing(record)
    iptables.remove(record)
    programs = r"\b(ip6?tables(?:-restore)?) "
    words = [text for text in (*lines, *map(" ".join, called)) if re.search(programs, text)]
    assert len(words) == 2 * 2 + 1 + 2 * 2 + 2 * 5
    for text in words:
        assert re.findall(programs, text) == re.findall(f"{programs}-w 30 ", text)


@pytest.mark.parametrize("tool", ["iptables", "ip6tables"])
def test_iptables_has_a_chain_that_is_asked_first(run, tool):
    run((tool, "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT"), must=True)
    before = run((tool, "-S"))
    assert iptables.listing(run) == ""
    iptables.apply(run, RULES)
    host = {"iptables": "10.0.0.7/32", "ip6tables": "fd00::/64"}[tool]
    tcp = "-A SALT_VIRT{} -p tcp -m tcp --dport {} -j {}".format
    assert run((tool, "-S", "SALT_VIRT")).splitlines() == [
        "-N SALT_VIRT",
        "-A SALT_VIRT -i lo -j RETURN",
        "-A SALT_VIRT -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
        tcp(f" -s {host}", "16514", "ACCEPT"),
        tcp(f" -s {host}", "49152:49215", "ACCEPT"),
        *(tcp("", ports, "DROP") for ports in ("16514", "49152:49215", "16509")),
    ]
    assert run((tool, "-S", "INPUT")).splitlines()[1] == "-A INPUT -j SALT_VIRT"
    made = iptables.listing(run)
    iptables.apply(run, RULES)
    assert iptables.listing(run) == made
    assert iptables.expected_rules(RULES) != iptables.expected_rules(OTHER)
    iptables.apply(run, OTHER)
    assert host not in run((tool, "-S"))
    iptables.remove(run)
    assert run((tool, "-S")) == before


def test_iptables_is_in_use_when_somebody_else_has_a_rule(run):
    assert not iptables.runs(run)
    iptables.apply(run, OTHER)
    assert not iptables.runs(run), "that is ours"
    run(("iptables", "-P", "INPUT", "DROP"), must=True)
    assert iptables.runs(run)


def test_fail2ban_is_no_sign_of_iptables(run):
    run(("iptables", "-N", "f2b-sshd"), must=True)
    run(("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "f2b-sshd"), must=True)
    assert not iptables.runs(run)


@pytest.fixture
def peer(run):
    """``program.run`` in a second namespace, which a cable joins to the one of `run`."""
    subprocess.run(["ip", "netns", "add", PEER], check=True)
    inside = ("ip", "netns", "exec", PEER)

    def elsewhere(argv, *more, **options):
        return program.run((*inside, *argv), *more, **options)

    try:
        argv = ["ip", "-n", SPACE, "link", "add", "cable", "type", "veth", "peer", "name", "cable"]
        subprocess.run([*argv, "netns", PEER], check=True)
        for call, address in ((run, "10.9.0.1/24"), (elsewhere, "10.9.0.2/24")):
            call(("ip", "addr", "add", address, "dev", "cable"), must=True)
            call(("ip", "link", "set", "cable", "up"), must=True)
            call(("ip", "link", "set", "lo", "up"), must=True)
        yield elsewhere
    finally:
        subprocess.run(["ip", "netns", "del", PEER], check=True)


LISTEN = """
import socket, sys
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    print("listens", flush=True)
    sys.stdin.read()
"""
CONNECT = """
import socket, sys
address, port, local = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
try:
    with socket.create_connection((address, port), 2, ("", local)):
        print("connected")
except OSError as exc:
    print(exc)
"""


def connects(client, server_space, address, port, local=0):
    """Whether a connection opens. client: of the namespace that connects; local: its own port."""
    argv = ["ip", "netns", "exec", server_space, sys.executable, "-c", LISTEN, str(port)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "listens\n"
        answer = client((sys.executable, "-c", CONNECT, address, str(port), str(local)))
        server.stdin.close()
    return answer == "connected\n"


@pytest.mark.parametrize("firewall", [nftables, iptables])
def test_what_the_host_itself_connects_to_is_not_dropped(run, peer, firewall):
    """The ports of migrations are among those that the kernel chooses for a connection."""
    firewall.apply(run, RULES)
    for local in (49151, 49160, 49216):
        assert connects(run, PEER, "10.9.0.2", 4506, local)
    assert connects(run, SPACE, "127.0.0.1", 16514), "over the loopback interface"
    assert not connects(peer, SPACE, "10.9.0.1", 16514)
    assert not connects(peer, SPACE, "10.9.0.1", 49160)
    assert connects(peer, SPACE, "10.9.0.1", 4505)
    firewall.remove(run)
    assert connects(peer, SPACE, "10.9.0.1", 16514)


class Ufw:
    """ufw that is enabled; rules of somebody else are there."""

    def __init__(self):
        self.rules = ["allow 22/tcp", "deny 16514/tcp comment 'salt-virtual'"]

    def __call__(self, argv, text=None, must=False):
        assert argv[0] == "ufw"
        if argv[1:] == ("status",):
            return "Status: active\n"
        if argv[1:] == ("show", "added"):
            return "Added user rules (see 'ufw status' for running firewall):\n" + "".join(
                f"ufw {rule}\n" for rule in self.rules
            )
        if argv[1] == "prepend":
            assert (argv[-2:], must) == (("comment", "salt-virt"), True)
            self.rules.insert(0, f"{' '.join(argv[2:-2])} comment 'salt-virt'")
        else:
            assert argv[1] == "delete"
            self.rules.remove(f"{' '.join(argv[2:])} comment 'salt-virt'")
        return ""


def test_ufw_has_our_rules_in_front_in_their_order():
    run = Ufw()
    before = list(run.rules)
    assert ufw.runs(run)
    assert ufw.listing(run) == ""
    ufw.apply(run, OTHER)
    ufw.apply(run, RULES)
    assert ufw.listing(run).splitlines() == ufw.expected_rules(RULES) == [
        "allow from 10.0.0.7 to any port 16514 proto tcp",
        "allow from fd00::/64 to any port 16514 proto tcp",
        "allow from 10.0.0.7 to any port 49152:49215 proto tcp",
        "allow from fd00::/64 to any port 49152:49215 proto tcp",
        *("deny 16514/tcp", "deny 49152:49215/tcp", "deny 16509/tcp"),
    ]  # fmt: skip
    assert run.rules[-2:] == before
    ufw.remove(run)
    assert run.rules == before


class Firewalld:
    """firewalld with zones of an interface, of a source, of libvirt's, and none by default."""

    THEIRS = 'rule family="ipv4" source address="10.0.0.9" accept'

    def __init__(self):
        self.in_use = "work"
        self.rules = {(zone, kept): [self.THEIRS] for zone in ("work", "trusted", "libvirt",
                      "public") for kept in (True, False)}  # fmt: skip

    def __call__(self, argv, text=None, must=False):
        assert argv[0] == "firewall-cmd"
        if argv[1] == "--state":
            return "running\n"
        if argv[1] == "--get-active-zones":
            return (
                "libvirt\n  interfaces: virbr0\ntrusted\n  sources: 10.1.0.0/16\n"
                f"{self.in_use} (default)\n  interfaces: eth0\n"
            )
        if argv[-1] == "--get-zones":
            return "libvirt public trusted work\n"
        if argv[1] == "--get-default-zone":
            return "public\n"
        options = dict(one.lstrip("-").split("=", 1) for one in argv[1:] if "=" in one)
        rules = self.rules[options["zone"], "--permanent" in argv]
        if "--list-rich-rules" in argv:
            return "".join(f"{rule}\n" for rule in rules)
        if "add-rich-rule" in options:
            assert must
            rules.append(options["add-rich-rule"])
        else:
            rules.remove(options["remove-rich-rule"])
        return ""


def test_firewalld_has_our_rules_in_each_zone_now_and_after_a_start():
    run = Firewalld()
    assert firewalld.runs(run)
    assert firewalld.zones(run) == ["public", "trusted", "work"], "libvirt's own is its own"
    assert firewalld.listing(run) == ""
    firewalld.apply(run, OTHER)
    firewalld.apply(run, RULES)
    wanted = firewalld.expected_rules(RULES)
    assert wanted[:2] == [
        'rule priority="-16514" family="ipv4" source address="10.0.0.7" port port="16514" '
        'protocol="tcp" accept',
        'rule priority="-16514" family="ipv4" source address="10.0.0.7" port port="49152-49215" '
        'protocol="tcp" accept',
    ]
    assert 'family="ipv6" source address="fd00::/64"' in wanted[2]
    assert wanted[4:] == [
        f'rule priority="-16513" port port="{ports}" protocol="tcp" drop'
        for ports in ("16514", "49152-49215", "16509")
    ]
    for (zone, _kept), rules in run.rules.items():
        assert rules == [run.THEIRS, *(wanted if zone != "libvirt" else [])]
    assert sorted(firewalld.listing(run).splitlines()) == sorted(
        [*firewalld.zones(run)]
        + [f"{zone} {rule}" for zone in firewalld.zones(run) for rule in wanted * 2]
    )
    run.in_use = "public"
    firewalld.apply(run, RULES)
    assert run.rules["work", True] == [run.THEIRS], "the interface is in another zone now"
    run.in_use = "work"
    firewalld.apply(run, RULES)
    run.in_use = "public"
    firewalld.remove(run)
    assert run.rules == Firewalld().rules


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("sh", "-c", "echo one; echo two >&2; exit 3"), r"^sh -c .*: two$"),
        (("sh", "-c", "echo one; exit 3"), ": one$"),
        (("sh", "-c", "echo 2: Error: wrong word; echo '  ^'; exit 1"), ": 2: Error: wrong word$"),
        (("false",), "^false: failed$"),
        (("/no/such/program",), "^/no/such/program: .*No such file"),
    ],
)
def test_what_a_program_that_must_work_says_is_in_the_error(argv, said):
    assert program.run(argv) == ""
    with pytest.raises(program.OperationFailed, match=said):
        program.run(argv, must=True)
