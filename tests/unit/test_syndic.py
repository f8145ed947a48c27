"""A master of masters: who is below its syndics is found by asking."""

import pytest

pytest.importorskip("salt")

from saltvirt.fleet import client, syndic, target

OPTS = {"timeout": 0.3, "syndic_wait": 0.1, "order_masters": True, "virt": {"hosts": "hv*"}}


class Bus:
    """Salt's LocalClient with its event bus: answers that were prepared."""

    def __init__(self, *answers):
        self.answers, self.published = list(answers), []
        self.event = self

    def subscribe(self, tag):
        self.tag = tag

    def unsubscribe(self, tag):
        assert tag == self.tag
        self.tag = None

    def pub(self, tgt, fun, arg, **how):
        self.published.append((tgt, fun, how["tgt_type"]))

    def get_event(self, wait, tag, full):
        return {"data": {"id": self.answers.pop()}} if self.answers else None


@pytest.fixture
def fleet(monkeypatch):
    """A Fleet whose master accepted hv1 only; hv2 is below a syndic."""
    monkeypatch.setattr(target, "hosts", lambda opts, target=None: ["hv1"])
    monkeypatch.setattr(target, "connected", lambda opts, ids=None: set())
    fleet = client.Fleet(OPTS)
    fleet._client = Bus("hv1", "hv2")
    return fleet


def test_all_who_answer_are_found(monkeypatch):
    bus = Bus("hv2", "hv1")
    assert syndic.answering(bus, OPTS, "hv*") == {"hv1", "hv2"}
    assert bus.published == [("hv*", "test.ping", "compound")]
    assert bus.tag is None


def test_the_hosts_are_those_of_all_masters_and_they_are_asked_once(fleet):
    assert fleet.hosts() == ["hv1", "hv2"]
    assert fleet.hosts("hv2") == ["hv2"]
    assert len(fleet.client.published) == 1


def test_one_below_a_syndic_is_never_down_only_silent(fleet):
    assert client._Job(fleet, ["hv1", "hv2"], None).unheard == {"hv1"}


def test_any_other_master_asks_nobody(fleet):
    fleet.opts = {**OPTS, "order_masters": False}
    assert fleet.hosts() == ["hv1"]
    assert fleet.client.published == []
    assert client._Job(fleet, ["hv1"], None).unheard == {"hv1"}
