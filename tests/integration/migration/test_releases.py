"""Guests between hosts of two Debian releases: migrations that libvirt permits succeed, others are
refused. Slow: a lab of its own, with a hypervisor of each release. ``make test-matrix`` runs it for
each pair."""

import re

import pytest

from tests.integration.migration import counter

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def cloud(mixed_lab):
    mixed_lab.sync()
    counter.install(mixed_lab)
    return mixed_lab


@pytest.fixture(scope="module")
def hosts(cloud):
    """The host of the older release and that of the newer one."""
    found = sorted((release(cloud, host), host) for host in cloud.hosts)
    assert [number for number, _ in found] == [12, 13]
    return [host for _, host in found]


def release(cloud, host):
    return int(cloud.exec(host, ". /etc/os-release && echo $VERSION_ID").stdout)


def machine(cloud, host, name):
    """The machine type of a guest, in full."""
    xml = cloud.exec(host, ["virsh", "dumpxml", "--inactive", name]).stdout
    return re.search(r"machine='([^']+)'", xml)[1]


def refused(cloud, name, host):
    """What is said of a migration that is refused, before and when it is tried; nothing changes."""
    asked = cloud.run("virt.migratable", name, host)
    tried = cloud.run("virt.migrate", name, host)
    assert (asked.rc, tried.rc) == (1, 1), (asked, tried)
    assert "Traceback" not in asked.stderr + tried.stdout + tried.stderr
    return asked.stdout, tried.stdout + tried.stderr


def test_the_hosts_see_each_other_and_each_ones_versions(cloud, hosts):
    answer = cloud.run_json("virt.versions")["versions"]
    assert sorted(answer["hosts"]) == sorted(hosts)
    certs = cloud.run_json("virt.certs")
    assert not certs.get("problems"), certs


def test_a_running_guest_goes_to_the_newer_release_and_back_when_it_is_stopped(
    cloud, hosts, guests
):
    old, new = hosts
    guest = guests("rel1").define(old).fill(old, 5)
    before = machine(cloud, old, "rel1")
    guest.start(old)
    done = cloud.run("virt.migrate", "rel1", new)
    assert done.rc == 0, done.stdout + done.stderr
    guest.is_whole_on(new)
    assert machine(cloud, new, "rel1") == before
    for text in refused(cloud, "rel1", old):
        assert "is older than" in text
    guest.is_whole_on(new)
    # its machine type is the older release's own: stopped, nothing keeps it
    cloud.exec(new, ["virsh", "-q", "destroy", "rel1"])
    done = cloud.run("virt.migrate", "rel1", old, offline=True)
    assert done.rc == 0, done.stdout + done.stderr
    assert guest.states() == {old: "shut off"}
    guest.start(old)
    guest.is_whole_on(old, boots=2)


@pytest.mark.parametrize("running", [False, True])
def test_a_guest_of_the_newer_releases_machine_type_is_refused_with_the_reason(
    cloud, hosts, guests, running
):
    old, new = hosts
    guest = guests("rel2").define(new)
    kind = machine(cloud, new, "rel2")
    if running:
        guest.start(new)
    for text in refused(cloud, "rel2", old):
        assert kind in text
    assert guest.states() == {new: "running" if running else "shut off"}
    assert guest.files(old) == []


def test_an_evacuation_goes_to_the_newer_release_and_a_running_guest_does_not_come_back(
    cloud, hosts, guests
):
    old, new = hosts
    guest = guests("rel3").define(old).start(old)
    done = cloud.run("virt.evacuate", old)
    assert done.rc == 0, done.stdout + done.stderr
    guest.is_whole_on(new)
    # its way back is the way of a running guest to an older QEMU
    for verb, host in (("virt.restore", old), ("virt.evacuate", new)):
        done = cloud.run(verb, host)
        assert done.rc == 1
        assert re.search(r"rel3 .*is older than", done.stdout), done.stdout
        guest.is_whole_on(new)
    assert cloud.run("virt.restore", new).rc == 0
