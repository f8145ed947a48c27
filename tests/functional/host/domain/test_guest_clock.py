"""The clock of a guest after a revert to earlier memory: the guest agent sets it, or the answer
says that it is wrong."""

import time

import pytest

libvirt = pytest.importorskip("libvirt")

from saltvirt.host.domain import guest_clock

AGENT = (
    "<domain><devices><channel type='unix'><target name='org.qemu.guest_agent.0'/></channel>"
    "</devices></domain>"
)


class Dom:
    """fails: what the first calls of setTime raise."""

    def __init__(self, xml=AGENT, state=libvirt.VIR_DOMAIN_RUNNING, fails=0):
        self.xml, self.now, self.fails, self.told = xml, [state, 1], fails, []

    def name(self):
        return "web1"

    def state(self):
        return self.now

    def XMLDesc(self, _flags):
        return self.xml

    def agentSetResponseTimeout(self, seconds, _flags):
        assert seconds > 0

    def setTime(self, told):
        self.told.append(told)
        if len(self.told) <= self.fails:
            exc = libvirt.libvirtError("no")
            exc.err = (86, 0, "the agent is not connected", 2, "", None, None, 0, 0)
            raise exc


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(guest_clock, "_RETRY_S", 0)


def test_the_agent_sets_it_as_soon_as_it_is_heard():
    dom = Dom(fails=2)
    before = time.time_ns()
    assert guest_clock.set_now(dom) is None
    told = dom.told[-1]["seconds"] * 10**9 + dom.told[-1]["nseconds"]
    assert len(dom.told) == 3 and before <= told <= time.time_ns()


@pytest.mark.parametrize(("dom", "why"), [
    (Dom("<domain><devices/></domain>"), "it has no guest agent"),
    (Dom(state=libvirt.VIR_DOMAIN_PAUSED), "the guest is not running"),
    (Dom(fails=10**9), "the agent is not connected"),
])  # fmt: skip
def test_else_it_is_said_what_to_do(dom, why, monkeypatch):
    monkeypatch.setattr(guest_clock, "_TIMEOUT_S", 0.01)
    said = guest_clock.set_now(dom)
    assert f"shows the time of the snapshot ({why})" in said
    assert said.endswith("`virsh domtime web1 --now` if its agent responds")
    assert bool(dom.told) is (dom.fails > 0)
