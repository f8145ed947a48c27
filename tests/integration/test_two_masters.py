"""Two masters of the same hypervisors, as Salt's minions can have them (``master: [a, b]``)."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.masters import FIRST, OTHER, SECOND, join, run

pytestmark = [pytest.mark.lab, pytest.mark.slow]

DEBIAN = "/var/lib/libvirt/images/debian.qcow2"
SMALL = "/var/lib/libvirt/images/small.qcow2"


@pytest.fixture(scope="module")
def masters(fresh_lab):
    """The lab with a second master, which its hypervisors have, too."""
    lab = fresh_lab
    lab.sync()
    lab.exec("master", SECOND)
    for host in lab.hosts:
        lab.exec(host, f"qemu-img create -q -f qcow2 {SMALL} 16M")
    join(lab)
    return lab


def where(lab, name):
    """{host: state} of the guest, by libvirt itself."""
    found = {}
    for host in lab.hosts:
        listed = lab.exec(host, ["virsh", "domstate", name], check=False)
        if listed.returncode == 0:
            found[host] = listed.stdout.strip()
    return found


def both(lab, name, places, image=SMALL, **given):
    """Deploys the name by both masters at once; [(result, comment), …]."""

    def deploy(config, host):
        more = {"host": host} if host else {}
        told, _ = run(lab, config, "virt.init", name, 1, 64, image, **more, **given)
        return told[name]["result"], told[name]["comment"]

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(deploy, (FIRST, OTHER), places))


PLACES = [("hv1", "hv2"), ("hv2", "hv1"), ("hv1", "hv1"), (None, None)]


REFUSED = ("already exists", "at the same time", "is being created on")


@pytest.mark.parametrize("again", range(3))
@pytest.mark.parametrize("places", PLACES, ids=["apart", "crosswise", "one-host", "anywhere"])
def test_one_name_at_once_is_one_guest_at_most(masters, places, again):
    name = f"t{PLACES.index(places)}{again}"
    disks = [{"name": "a", "size": 32}]
    told = both(masters, name, places, seed=False, disk=None, disks=disks)
    there = where(masters, name)
    good = [result for result, _ in told if result]
    assert len(good) == len(there) <= 1, (told, there)
    assert set(there.values()) <= {"running"}
    for result, comment in told:
        assert result or any(words in comment for words in REFUSED), comment
    for host in masters.hosts:
        left = masters.exec(host, f"ls /srv/salt-images | grep ^{name}_", check=False).stdout
        assert bool(left) is (host in there)
    for config in (FIRST, OTHER):
        assert run(masters, config, "virt.repair", name=name)[0]["repair"]["findings"] == []
    if there:
        assert run(masters, OTHER, "virt.purge", name, "force=True")[1] == 0
        assert where(masters, name) == {}


def test_each_master_has_the_key_of_the_guest_that_it_made_and_of_no_other(masters):
    told = both(masters, "k1", ("hv1", "hv2"), DEBIAN, start=False)
    there = where(masters, "k1")
    keys = [
        "k1" in masters.exec("master", ["salt-key", "-c", config, "-l", "acc"]).stdout
        for config in (FIRST, OTHER)
    ]
    assert keys == [bool(result) for result, _ in told], told
    assert sum(keys) == len(there) <= 1
