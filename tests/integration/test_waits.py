"""Hosts that hang, that the master does not see, or that are gone: every wait has a limit, and a
name is not free because a host is silent."""

import pytest

pytestmark = pytest.mark.lab

IMAGE = "/var/lib/libvirt/images/small.qcow2"
DISK = "disk: {small: [{system: {size: 32}}]}"
# of the one that hangs: it has an answer before that on a busy machine, too
MINIONS = {"hv1": f"virt: {{connection: {{timeout: 10}}, {DISK}}}", "hv2": f"virt: {{{DISK}}}"}
# the addresses that the master knows of a minion; what was there is printed
ADDRESSES = """
import json, sys
import salt.cache, salt.config
opts = salt.config.master_config("/etc/salt/master")
name, addresses = sys.argv[1], json.loads(sys.argv[2])
cache, before = salt.cache.factory(opts), []
for bank, key in ((f"minions/{name}", "data"), ("grains", name)):
    found = cache.fetch(bank, key)
    grains = (found or {}).get("grains", found)
    if grains and "ipv4" in grains:
        before = [grains["ipv4"], grains.get("ipv6", [])]
        grains["ipv4"], grains["ipv6"] = addresses
        cache.store(bank, key, found)
print(json.dumps(before))
"""


@pytest.fixture(scope="module")
def cloud(lab):
    for host in lab.hosts:
        lab.exec(host, f"qemu-img create -q -f qcow2 {IMAGE} 16M")
        lab.exec(host, f"echo '{MINIONS[host]}' > /etc/salt/minion.d/waits.conf")
    lab.restart_minion(*lab.hosts)
    yield lab
    for host in lab.hosts:
        lab.exec(host, "rm -f /etc/salt/minion.d/waits.conf")
    lab.restart_minion(*lab.hosts)


@pytest.fixture
def guests(cloud):
    """Removes what a test has made."""
    yield

    def none_is_left(host):
        left = cloud.exec(host, "virsh list --all --name").stdout.split()
        return all(cloud.call(host, "virt.purge", name) is True for name in left)

    for host in cloud.hosts:
        cloud.wait(lambda host=host: none_is_left(host), f"no guest is left on {host}")


def init(cloud, name, **more):
    given = {"disk": "small", "seed": False, "start": False, **more}
    return cloud.run("virt.init", name, 1, 64, IMAGE, **given)


@pytest.fixture
def hung(cloud):
    """hv1's libvirtd hangs as soon as it is called."""
    yield lambda: cloud.exec("hv1", ["pkill", "-STOP", "-x", "libvirtd"])
    cloud.exec("hv1", ["pkill", "-CONT", "-x", "libvirtd"])


def test_a_libvirt_that_hangs_holds_up_nobody_else_and_its_names_are_known(cloud, guests, hung):
    assert init(cloud, "old", host="hv1").rc == 0
    hung()
    asked = cloud.run_json("virt.list")
    assert "does not answer within 10 s" in asked["hv1"]["error"]
    there = init(cloud, "there", host="hv1")
    assert there.rc == 1
    assert "does not answer" in there.stdout
    elsewhere = init(cloud, "new", host="hv2")
    assert elsewhere.rc == 0, elsewhere.stdout
    assert "without hv1: " in elsewhere.stdout
    double = init(cloud, "old", host="hv2")
    assert double.rc == 1
    assert "old already exists, on hv1, whose libvirt does not answer" in double.stdout


@pytest.fixture
def unseen(cloud):
    """The master knows another address of hv2 than the one it has."""

    def known(addresses):
        argv = ["/opt/salt/bin/python", "-c", ADDRESSES, "hv2", addresses]
        return cloud.exec("master", argv).stdout.strip().splitlines()[-1]

    before = known('[["192.0.2.7"], []]')
    assert before != "[]"
    yield
    known(before)


def test_a_host_whose_address_is_a_new_one_is_asked_and_makes_guests(cloud, guests, unseen):
    assert "error" not in cloud.run_json("virt.list")["hv2"]
    done = init(cloud, "far", host="hv2")
    assert done.rc == 0, done.stdout


def test_a_name_that_a_host_may_have_that_is_off_is_refused_until_one_says_it_is_free(
    cloud, guests
):
    cloud.exec("hv2", "systemctl stop salt-minion")
    try:
        refused = init(cloud, "unsure")
        assert refused.rc == 1
        assert "it may be on a host that does not answer: hv2: down" in refused.stdout
        assert init(cloud, "unsure", name_is_free=True).rc == 0
    finally:
        cloud.exec("hv2", "systemctl start salt-minion")
        cloud.wait_for_minion("hv2")
