"""Published jobs of a verb if the guest is on the host where it was last seen. tests/counted.py
defines what counts as a job; docs/how-to/runner.md explains verbs with more than one."""

import pytest

pytest.importorskip("salt")

from saltvirt.fleet import target
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import find
from saltvirt.operations.create.eject import Eject
from saltvirt.operations.guest.lifecycle import Lifecycle
from saltvirt.operations.guest.update import ResizeDisk
from saltvirt.operations.journal import location_cache
from tests.counted import Cloud

WEB1 = {"vcpus": 1, "memory_kib": 1 << 20, "state": "running"}
# whether one host is asked or all are
ONE, ALL = "one", "all"


def power(verb, **more):
    return lambda cloud: Lifecycle(cloud, "web1", verb, **more).run()


# verb to (the guest's state, what is called, [(function, who is asked)])
VERBS = {
    "vm_info": ("running", lambda cloud: find.info(cloud, "web1"), [("virt.guest_details", ONE)]),
    "locate": ("running", lambda cloud: find.locate(cloud, "web1"), [("virt.vm_state", ALL)]),
    "shutdown": ("running", power("shutdown", wait_s=60), [("virt.power", ONE)]),
    "force_off": ("running", power("force_off"), [("virt.power", ONE)]),
    "force_off of one that is paused": ("paused", power("force_off"), [("virt.power", ONE)]),
    "pause": ("running", power("pause"), [("virt.power", ONE)]),
    "pause of one that is paused": ("paused", power("pause"), [("virt.power", ONE)]),
    "reset": ("running", power("reset"), [("virt.power", ONE)]),
    "seed_eject": (
        "running", lambda cloud: Eject(cloud, "web1").run(), [("virt.seed_eject", ONE)],
    ),
    # it could run twice, on one disk: all say first that they do not have it
    "resize of one that is off": (
        "shutdown", lambda cloud: ResizeDisk(cloud, "web1", "vda", "2B").run(),
        [("virt.vm_state", ALL), ("virt.resize_disk", ONE)],
    ),
    "start": ("shutdown", power("start"), [("virt.vm_state", ALL), ("virt.power", ONE)]),
    "resume": ("paused", power("resume"), [("virt.vm_state", ALL), ("virt.power", ONE)]),
    "a start's test=True": (
        "shutdown", lambda cloud: Lifecycle(cloud, "web1", "start").check(),
        [("virt.vm_state", ALL), ("virt.start", ONE)],
    ),
    "a pause's test=True": (
        "running", lambda cloud: Lifecycle(cloud, "web1", "pause").check(),
        [("virt.vm_state", ONE)],
    ),
    # what is off there may run elsewhere
    "force_off of one that is off": (
        "shutdown", power("force_off"), [("virt.power", ONE), ("virt.vm_state", ALL)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_costs_so_many_jobs(tmp_path, monkeypatch, verb):
    monkeypatch.setattr(KeyStore, "guest_ids", lambda _keys: {"web1"})
    monkeypatch.setattr(target, "reported", lambda _opts, _name: True)
    state, act, jobs = VERBS[verb]
    cloud = Cloud(tmp_path, 20, {"hv007": {"web1": {**WEB1, "state": state}}})
    location_cache.store(cloud.opts, "web1", "hv007")
    act(cloud)
    hosts = {ONE: ["hv007"], ALL: cloud.names}
    assert cloud.published == [(function, hosts[who]) for function, who in jobs]
