"""What the master makes of the hosts' answers, also of strange ones."""

import pytest

pytest.importorskip("salt")

from saltvirt.fleet.answer import FAILED, Answer, down
from saltvirt.operations import inventory

WHOLE = {"cpus": 2, "memory_kib": 1024, "pools": {"ssd": {"free_bytes": 5}}}


class Fleet:
    """Answers that were prepared."""

    def __init__(self, *answers):
        self.answers, self.asked = answers, []

    def hosts(self):
        return [answer.host for answer in self.answers]

    def ask(self, hosts, fun, kwarg=None, **options):
        self.asked.append((hosts, fun, kwarg, options))
        yield from self.answers


def test_each_host_is_data_or_a_reason():
    old = {**WHOLE, "pools": ["ssd"]}  # as an older version of the module tells it
    fleet = Fleet(
        Answer("hv2", data=WHOLE), Answer("hv1", data=WHOLE), down("gone"),
        Answer("sick", error="libvirt is not there", kind=FAILED), Answer("old", data=old),
        Answer("odd", data="what?"),
    )  # fmt: skip
    hosts, unheard = inventory.gather(fleet)
    assert [host.name for host in hosts] == ["hv1", "hv2"]
    assert unheard["gone"] == "down: no connection to the master"
    assert unheard["sick"] == "libvirt is not there"
    assert "salt old saltutil.sync_all" in unheard["old"]
    assert set(unheard) == {"gone", "sick", "old", "odd"}


def test_a_guest_is_asked_about_with_patience_when_it_shall_be_made():
    fleet = Fleet(Answer("hv1", data={**WHOLE, "guest": {"disk_bytes": 7}}))
    hosts, _ = inventory.gather(fleet, guest={"name": "web1"}, patient=True)
    assert hosts[0].needs.disk_bytes == 7
    asked = (["hv1"], "virt.inventory", {"guest": {"name": "web1"}}, {"patient": True})
    assert fleet.asked == [asked]
