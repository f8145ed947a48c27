"""The stored record of firewall rules, whenever the process dies."""

from types import SimpleNamespace

import pytest

from saltvirt.errors import InvalidInput, OperationFailed
from saltvirt.hostnet.firewall import firewall
from tests.functional.conftest import load

FRESH = "var", "lib", "salt-virt"


class Killed(BaseException):
    """Where a process ends."""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What a firewall that keeps its rules by itself was told, on a host without our folder."""
    calls = []
    monkeypatch.setattr(firewall, "STATE_FILE", tmp_path.joinpath(*FRESH, "firewall.json"))
    monkeypatch.setattr(firewall, "SCRIPT", tmp_path.joinpath(*FRESH, "firewall.sh"))
    monkeypatch.setattr(firewall, "UNIT", tmp_path / "salt-virt-firewall.service")
    kind = SimpleNamespace(
        apply=lambda _run, _rules: calls.append("apply"),
        remove=lambda _run: calls.append("remove"),
        listing=lambda _run: "rules",
        expected_rules=lambda rules: rules,
    )
    monkeypatch.setitem(firewall.KINDS, "firewalld", kind)
    return calls


def test_on_a_host_without_our_folder_the_rules_are_written_down(told):
    firewall.apply("firewalld", "w")
    assert firewall.has_rules()
    assert not firewall.differs("firewalld", "w")
    assert firewall.remove()
    assert told == ["apply", "remove"]
    assert not firewall.has_rules()


def test_rules_of_a_process_that_died_are_made_again_and_can_be_taken_away(told, monkeypatch):
    def killed(*_args):
        raise Killed

    monkeypatch.setattr(firewall, "_install_unit", killed)
    with pytest.raises(Killed):
        firewall.apply("firewalld", "w")
    assert firewall.differs("firewalld", "w")
    assert firewall.remove()
    assert told == ["apply", "remove"]


def test_rules_of_another_firewall_are_taken_away_before(told, monkeypatch):
    firewall.apply("firewalld", "w")
    made = []
    other = SimpleNamespace(
        apply=lambda _run, _rules: made.append("apply"),
        listing=lambda _run: "others",
        expected_rules=lambda rules: rules,
    )
    monkeypatch.setitem(firewall.KINDS, "ufw", other)
    firewall.apply("ufw", "w")
    assert (told, made) == (["apply", "remove"], ["apply"])
    assert firewall.differs("firewalld", "w")
    assert not firewall.differs("ufw", "w")


def test_a_firewall_that_took_no_rule_is_said_and_can_be_asked_again(told, monkeypatch):
    monkeypatch.setattr(firewall.KINDS["firewalld"], "listing", lambda _run: "")
    with pytest.raises(OperationFailed, match=r"^firewalld has not applied the rules"):
        firewall.apply("firewalld", "w")
    assert firewall.differs("firewalld", "w")
    assert firewall.remove()
    assert told == ["apply", "remove"]
    assert firewall.remove() is False, "there are none any more"


def test_what_makes_the_rules_at_a_start_goes_with_them(told, monkeypatch):
    ran = []
    monkeypatch.setattr(firewall.program, "run", lambda argv, **_how: ran.append(argv) or "")
    kind = SimpleNamespace(**vars(firewall.KINDS["firewalld"]), script=lambda _run, _w: "true")
    monkeypatch.setitem(firewall.KINDS, "nftables", kind)
    firewall.apply("nftables", "w")
    unit = "salt-virt-firewall.service"
    assert ran == [("systemctl", "daemon-reload"), ("systemctl", "enable", "--now", unit)]
    assert firewall.SCRIPT.read_text(encoding="utf-8") == "true"
    del ran[:]
    assert firewall.remove()
    assert ran == [("systemctl", "disable", "--now", unit), ("systemctl", "daemon-reload")]
    assert (firewall.UNIT.exists(), firewall.SCRIPT.exists()) == (False, False)


def test_a_host_without_any_firewall_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(firewall.program, "run", lambda _argv, **_how: "")
    with pytest.raises(InvalidInput, match="install nftables, iptables, ufw or firewalld"):
        firewall.kind()
    assert firewall.kind("ufw") == "ufw"


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda: firewall.kind("pf"), "firewall 'pf': use one of firewalld, ufw"),
        (lambda: firewall.kind(["ufw"]), "use one of"),
        (lambda: firewall.rules("hv1", [], []), "hosts must be a list, not 'hv1'"),
        (lambda: firewall.rules([], [[1]], []), "opened must be a list"),
        (lambda: firewall.rules([], ["ssh"], []), "'ssh' is not a port or a range"),
        (lambda: firewall.rules([], [], ["200-100"]), "'200-100' is not a port or a range"),
        (lambda: firewall.rules([], [], [65536]), "65536 is not a port"),
        (
            lambda: firewall.rules(["/"], [], []),
            "the other hypervisor / cannot be resolved on this host",
        ),
        (
            lambda: firewall.rules(["a..b"], [], []),
            r"the other hypervisor a\.\.b cannot be resolved",
        ),
    ],
)
def test_a_slip_is_named_before_anything_is_asked(act, why):
    with pytest.raises(InvalidInput, match=why):
        act()


def test_names_become_their_addresses_once_each():
    found = firewall.rules(["10.0.0.7", "10.0.0.7/32", "10.1.2.3/16", "::1"], ["16514"], [22])
    assert found.hosts == ("10.0.0.7", "10.1.0.0/16", "::1")
    assert (found.open, found.shut) == (((16514, 16514),), ((22, 22),))
    assert "127.0.0.1" in firewall.rules(["localhost"], [], []).hosts


def test_a_host_on_which_no_rule_was_made_has_none_to_take_away():
    modules = load("test:///default")
    assert modules["virt.firewall_made"]() is False
    assert modules["virt.firewall_remove"]() is False
