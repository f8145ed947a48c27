"""What all other tests here need."""

import os

import psutil


def test_nobody_here_is_root(cloud):
    daemons = [cloud.master, *cloud.minions.values()]
    pids = [daemon.pid for daemon in daemons]
    pids += [one.process.pid for one in cloud.libvirtds.values()]
    for pid in pids:
        found = psutil.Process(pid)
        every = [found, *found.children(recursive=True)]
        assert {set_ for one in every for set_ in one.uids()} == {os.geteuid()}
    assert os.geteuid() != 0


def test_sync(cloud):
    for kinds in cloud.synced.values():
        assert "modules.virt" in kinds["modules"]
        assert "grains.virt_host" in kinds["grains"]


def test_the_grain_says_what_a_minion_is(cloud):
    found = cloud.salt("hv*", "grains.get", "virt_host")
    for grain in found.values():
        assert set(grain) >= {"hypervisor", "type", "daemons", "kvm", "arch"}
