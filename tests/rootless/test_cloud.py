"""The requirements of all other tests of this folder."""

import contextlib
import os

import psutil
import pytest

from tests.clock import until


def test_nobody_here_is_root(cloud):
    daemons = [cloud.master, *cloud.minions.values()]
    pids = [daemon.pid for daemon in daemons]
    pids += [one.process.pid for one in cloud.libvirtds.values()]
    for pid in pids:
        found = psutil.Process(pid)
        assert set(found.uids()) == {os.geteuid()}
        for child in found.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it was for one job
                assert set(child.uids()) == {os.geteuid()}
    assert os.geteuid() != 0


def test_sync(cloud):
    if cloud.way == "pip":
        pytest.skip("nothing of ours is synced: pip brought it")
    for kinds in cloud.synced.values():
        assert "modules.virt" in kinds["modules"]
        assert "grains.virt_host" in kinds["grains"]


def test_the_grain_says_what_a_minion_is(cloud):
    def known():
        found = cloud.salt("hv*", "grains.get", "virt_host")
        return found if all(found.values()) and set(found) == set(cloud.hosts) else None

    # a minion reads its grains again in its own time after a sync
    for grain in until(known, "the grain on both").values():
        assert set(grain) >= {"hypervisor", "type", "daemons", "kvm", "arch"}


@pytest.mark.parametrize("fun", ["virt.vm_state", "virt.usage", "virt.inventory"])
def test_a_job_imports_nothing_and_loads_few_modules(cloud, fun):
    """Its minion holds the library, and Salt finds each function at once."""

    def costs():
        found = cloud.salt("hv*", "virt.costs", fun)
        return found if all(one["held"] for one in found.values()) else None

    for cost in until(costs, "the library in both minions").values():
        assert cost["imported"] == []
        assert set(cost["loaded"]) <= {"virt", "config", "saltutil", "grains"}
