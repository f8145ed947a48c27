"""Clones and renamed guests boot, get an address of their own and answer, for each way of seeding
and each network configuration system."""

import re

import pytest

from tests.integration.seeding import images
from tests.integration.seeding.host import Host
from tests.integration.test_seed import CONFIG, FIXED, IMAGE
from tests.lab.fixtures import recipe

pytestmark = [pytest.mark.lab, pytest.mark.slow]

BOOTS_S = 3600
LEASED = re.compile(r"10\.77\.0\.(1[0-9]{2}|200)$")


@pytest.fixture(scope="module")
def hv1(lab):
    host = Host(lab, "hv1")
    host.configure(CONFIG)
    yield host
    host.configure(None)


@pytest.fixture
def guests(lab, hv1):
    """Removes the guests of a test."""
    before = set(hv1.call("virt.list_domains"))
    yield hv1
    for name in set(hv1.call("virt.list_domains")) - before:
        lab.run("virt.purge", name, force=True)


def answers(lab, name):
    """(host name, addresses) as the guest's own minion says."""
    lab.wait_for_minion(name, timeout_s=BOOTS_S)
    return lab.call(name, "grains.get", "host"), lab.call(name, "network.ip_addrs", timeout=60)


def stopped(lab, hv1, name):
    assert hv1.call("virt.shutdown", vm_=name) is True
    lab.wait(lambda: hv1.call("virt.vm_state", vm_=name) == {name: "shutdown"}, f"{name} is off")


def copied_and_renamed(lab, hv1, name, words):
    """A clone of a guest that is off answers, and so it does under another name."""
    done = lab.run("virt.clone", name, "copy", "start=True", timeout=2400)
    assert done.rc == 0, done.stdout + done.stderr
    assert words in done.stdout
    host, [address] = answers(lab, "copy")
    assert host == "copy"
    assert LEASED.match(address)
    stopped(lab, hv1, "copy")
    done = lab.run("virt.rename", "copy", "other", timeout=2400)
    assert done.rc == 0, done.stdout + done.stderr
    assert lab.run("virt.start", "other").rc == 0
    host, [address] = answers(lab, "other")
    assert host == "other"
    assert LEASED.match(address)


def made(lab, name, image, *more, **options):
    done = lab.run("virt.init", name, 1, 512, image, *more, timeout=5000, host="hv1", **options)
    assert done.rc == 0, done.stdout + done.stderr


def pushed(lab, kind):
    path = images.image(kind, recipe())
    lab.push("hv1", path, f"/root/{kind}")
    return f"/root/{kind}/image.qcow2"


def test_a_guest_with_a_fixed_address_by_networkd(lab, guests):
    made(lab, "fixed", IMAGE, interfaces=[FIXED], start=False)
    copied_and_renamed(
        lab, guests, "fixed",
        "05-salt-virt-0.network: the static addresses remain with the original",
    )  # fmt: skip


@pytest.mark.parametrize("system", images.SYSTEMS)
@pytest.mark.parametrize("seed", ["cloud-init", True])
def test_a_guest_of_each_system(lab, guests, system, seed):
    """By cloud-init with DHCP, which is bound to the MAC address as well; offline with a fixed
    address."""
    image = pushed(lab, system)
    if seed == "cloud-init":
        made(lab, "first", image, f"timeout={BOOTS_S}", seed=seed, install=False, wait=True)
        assert guests.sh("ls /srv/salt-images/_seed") == ""
        stopped(lab, guests, "first")
        words = "a copy of first, is running"
    else:
        made(lab, "first", image, interfaces=[FIXED], start=False)
        words = "the static addresses remain with the original"
    copied_and_renamed(lab, guests, "first", words)
