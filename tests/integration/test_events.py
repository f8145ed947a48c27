"""The engine: libvirt's events on a hypervisor arrive on the master's bus."""

import json
import subprocess
import threading

import pytest

from tests.integration.hv import guest

pytestmark = pytest.mark.lab

CONF = "/etc/salt/minion.d/engines.conf"
PREFIX = "lab/events"
UNTIL_READY_S = 60


class Bus:
    """What arrives on the master with the engine's tags."""

    def __init__(self, lab):
        self.lab, self.seen = lab, []
        command = ["salt-run", "state.event", f"{PREFIX}/*", "count=-1"]
        self.process = subprocess.Popen(
            lab.machine("master").argv(command), stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            tag, _, data = line.partition("\t")
            if data:
                self.seen.append((tag.removeprefix(PREFIX + "/"), json.loads(data)["data"]))

    def find(self, tag, **wanted):
        return [d for t, d in self.seen if t == tag and wanted.items() <= d.items()]

    def wait(self, tag, **wanted):
        return self.lab.wait(lambda: self.find(tag, **wanted), f"{tag} {wanted}: {self.seen}")[0]


@pytest.fixture(scope="module")
def bus(lab, hv):
    engine = {"libvirt_events": {"uri": "qemu:///system", "tag_prefix": PREFIX,
                                 "filters": ["domain/lifecycle", "network", "pool"]}}  # fmt: skip
    hv.sh(f"echo '{json.dumps({'engines': [engine]})}' > {CONF}")
    lab.restart_minion(hv.name)
    hv.define("", guest("labev"))
    listening = Bus(lab)
    ready(lab, hv, listening)
    yield listening
    hv.virsh("undefine", "labev", check=False)
    hv.sh(f"rm {CONF}")
    listening.process.kill()
    lab.restart_minion(hv.name)


def ready(lab, hv, bus):
    """Make events until one arrives."""
    bus.seen.clear()

    def one():
        hv.sh("virsh -q net-start default; virsh -q net-destroy default", check=False)
        return bus.find("qemu/system/network/lifecycle")

    lab.wait(one, "an event of the engine", UNTIL_READY_S, every_s=2)
    bus.seen.clear()


def test_the_life_of_a_guest(hv, bus):
    uuid = hv.virsh("domuuid", "labev").strip()
    for verb in ("start", "suspend", "resume", "destroy"):
        hv.virsh(verb, "labev")
    tag = "qemu/system/domain/lifecycle"
    told = bus.wait(tag, event="started", detail="booted")
    assert told["uri"] == "qemu:///system"
    assert (told["domain"]["name"], told["domain"]["uuid"]) == ("labev", uuid)
    for event, detail in (("suspended", "paused"), ("stopped", "destroyed")):
        assert bus.wait(tag, event=event, detail=detail)["domain"]["name"] == "labev"


def test_pools_and_networks(hv, bus):
    hv.virsh("net-start", "default")
    hv.virsh("net-destroy", "default")
    for event in ("started", "stopped"):
        told = bus.wait("qemu/system/network/lifecycle", event=event)
        assert told["network"]["name"] == "default"
    hv.sh("mkdir -p /srv/ev && virsh -q pool-create-as labev dir --target /srv/ev")
    hv.virsh("pool-refresh", "labev")
    hv.virsh("pool-destroy", "labev")
    for event in ("started", "stopped"):
        assert bus.wait("qemu/system/pool/lifecycle", event=event)["pool"]["name"] == "labev"
    assert bus.wait("qemu/system/pool/refresh")["pool"]["name"] == "labev"


def test_it_comes_back_when_libvirt_does(lab, hv, bus):
    hv.sh("systemctl restart libvirtd")
    ready(lab, hv, bus)
    hv.virsh("start", "labev")
    hv.virsh("destroy", "labev")
    assert bus.wait("qemu/system/domain/lifecycle", event="started")["domain"]["name"] == "labev"
