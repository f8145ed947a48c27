"""What is written down of the rules of a firewall, whenever the process dies."""

from types import SimpleNamespace

import pytest

from saltvirt.hostnet.firewall import firewall

FRESH = "var", "lib", "salt-virt"


class Killed(BaseException):
    """Where a process ends."""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What a firewall that keeps its rules by itself was told, on a host without our folder."""
    calls = []
    monkeypatch.setattr(firewall, "KEPT", tmp_path.joinpath(*FRESH, "firewall.json"))
    monkeypatch.setattr(firewall, "SCRIPT", tmp_path.joinpath(*FRESH, "firewall.sh"))
    monkeypatch.setattr(firewall, "UNIT", tmp_path / "salt-virt-firewall.service")
    kind = SimpleNamespace(
        apply=lambda _run, _wanted: calls.append("apply"),
        remove=lambda _run: calls.append("remove"),
        listing=lambda _run: "rules",
        wanted=lambda wanted: wanted,
    )
    monkeypatch.setitem(firewall.KINDS, "firewalld", kind)
    return calls


def test_on_a_host_without_our_folder_the_rules_are_written_down(told):
    firewall.apply("firewalld", "w")
    assert firewall.made()
    assert not firewall.differs("firewalld", "w")
    assert firewall.remove()
    assert told == ["apply", "remove"]
    assert not firewall.made()


def test_rules_of_a_process_that_died_are_made_again_and_can_be_taken_away(told, monkeypatch):
    def killed(*_args):
        raise Killed

    monkeypatch.setattr(firewall, "_at_start", killed)
    with pytest.raises(Killed):
        firewall.apply("firewalld", "w")
    assert firewall.differs("firewalld", "w")
    assert firewall.remove()
    assert told == ["apply", "remove"]
