"""Whatever fails, the guest runs on one host with all its data, and the other host has no
leftovers."""

import contextlib
import time

import pytest

from tests.integration.migration import counter

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# MiB/s: slow enough to do harm in the middle of the 256 MiB disk
SLOW = 5


def begin(lab, guests, name):
    """A guest whose migration has begun to copy its disk."""
    guest = guests(name).define("hv1", "256M").fill("hv1", 100).start("hv1")
    lab.exec("master", f"salt --async hv1 virt.migrate {name} hv2 max_bandwidth={SLOW}")
    lab.wait(lambda: counter.copying(lab, name), "the disk is being copied")
    return guest


def ended(lab):
    """No migration is at work or unfinished on the first host."""
    return not counter.unfinished(lab, "hv1")


def again(lab, name):
    done = lab.run("virt.migrate", name, "hv2")
    assert done.rc == 0, done.stdout


def kill_source_libvirtd(lab, _guest):
    lab.kill("hv1", "sbin/libvirtd")


def kill_target_libvirtd(lab, _guest):
    lab.kill("hv2", "sbin/libvirtd")


def kill_target_qemu(lab, guest):
    lab.kill("hv2", f"guest={guest.name},")


def kill_target_minion(lab, _guest):
    lab.kill("hv2", "bin/salt-minion")
    lab.exec("hv2", "systemctl restart salt-minion")


@pytest.mark.parametrize(
    "harm", [kill_source_libvirtd, kill_target_libvirtd, kill_target_qemu, kill_target_minion]
)
def test_killed_while_copying(cloud, guests, harm):
    name = "f-" + harm.__name__.removeprefix("kill_").replace("_", "-")
    guest = begin(cloud, guests, name)
    harm(cloud, guest)
    cloud.wait(lambda: ended(cloud), "the first attempt is over", 120)
    assert list(guest.states().values()).count("running") == 1
    again(cloud, name)
    guest.is_whole_on("hv2")


@contextlib.contextmanager
def cut(lab):
    """No packet goes between the two hypervisors for the block; the master reaches both."""
    other = lab.exec("hv1", "getent hosts hv2 | cut -d' ' -f1").stdout.strip()
    rules = (f"INPUT -s {other} -j DROP", f"OUTPUT -d {other} -j DROP")
    for rule in rules:
        lab.exec("hv1", f"iptables -I {rule}")
    try:
        yield
    finally:
        for rule in rules:
            lab.exec("hv1", f"iptables -D {rule}")


def test_a_short_cut_of_the_network_is_survived(cloud, guests):
    guest = begin(cloud, guests, "f-short-cut")
    with cut(cloud):
        time.sleep(5)
    cloud.wait(lambda: ended(cloud), "the migration is over", 120)
    guest.is_whole_on("hv2")


def test_a_long_cut_ends_it_and_the_guest_runs_on(cloud, guests):
    guest = begin(cloud, guests, "f-long-cut")
    with cut(cloud):
        time.sleep(45)  # libvirt's own patience is 30 s
        guest.counts_on("hv1")
    cloud.wait(lambda: ended(cloud), "the first attempt is over", 150)
    guest.clear()
    guest.is_whole_on("hv1")
    again(cloud, guest.name)
    guest.is_whole_on("hv2")


def test_the_targets_disk_fills_up(cloud, guests):
    folder = "/var/lib/libvirt/images/small"
    for host in cloud.hosts:
        cloud.exec(host, f"mkdir -p {folder}")
    cloud.exec("hv2", f"mount -t tmpfs -o size=400M none {folder}")
    try:
        guest = guests("f-full", folder=folder).define("hv1", "256M").fill("hv1", 100).start("hv1")
        cloud.exec("master", f"salt --async hv1 virt.migrate f-full hv2 max_bandwidth={SLOW}")
        cloud.wait(lambda: counter.copying(cloud, "f-full"), "the disk is being copied")
        cloud.exec("hv2", f"dd if=/dev/zero of={folder}/other bs=1M", check=False)
        cloud.wait(lambda: ended(cloud), "the attempt is over", 120)
        guest.clear()
        guest.is_whole_on("hv1")
        assert cloud.exec("hv2", ["ls", folder]).stdout.split() == ["other"]
    finally:
        cloud.exec("hv2", f"umount -l {folder}")
        cloud.exec("hv1", "virsh destroy f-full")


@contextlib.contextmanager
def closed(lab, ports):
    """The target's firewall refuses these for the block."""
    rule = f"INPUT -p tcp --dport {ports} -j REJECT"
    lab.exec("hv2", f"iptables -I {rule}")
    try:
        yield
    finally:
        lab.exec("hv2", f"iptables -D {rule}")


def test_qemus_ports_are_closed(cloud, guests):
    guest = guests("f-ports").define("hv1", "256M").start("hv1")
    with closed(cloud, "49152:49215"):
        done = cloud.run("virt.migrate", "f-ports", "hv2")
    assert done.rc == 1
    assert "49152-49215" in done.stdout
    guest.is_whole_on("hv1")


def test_libvirts_port_is_closed(cloud, guests):
    guest = guests("f-port").define("hv1", "256M").start("hv1")
    with closed(cloud, "16514"):
        done = cloud.run("virt.migrate", "f-port", "hv2")
    assert done.rc == 1
    assert "16514" in done.stdout
    guest.is_whole_on("hv1")


@pytest.mark.parametrize(
    ("host", "pem", "key"),
    [
        ("hv1", "libvirt/clientcert.pem", "libvirt/private/clientkey.pem"),
        ("hv1", "qemu/client-cert.pem", "qemu/client-key.pem"),
        ("hv2", "qemu/server-cert.pem", "qemu/server-key.pem"),
    ],
)
def test_an_expired_certificate_is_named(cloud, guests, host, pem, key):
    """Before anything is tried: QEMU's own would be looked at in the middle of the move."""
    guest = guests("f-cert").define("hv1", "256M").start("hv1")
    pem, key = f"/etc/pki/{pem}", f"/etc/pki/{key}"
    cloud.exec(host, f"cp -p {pem} /root/kept.pem")
    cloud.exec(
        host,
        f"openssl x509 -in {pem} -signkey {key} -days -1 -out /root/old.pem 2>/dev/null; "
        f"cat /root/old.pem > {pem}",
    )
    try:
        found = cloud.run_json("virt.migratable", "f-cert", "hv2")["f-cert"]
        done = cloud.run("virt.migrate", "f-cert", "hv2")
    finally:
        cloud.exec(host, f"cat /root/kept.pem > {pem}")
    assert done.rc == 1
    assert f"{pem} on {host} expired on 20" in done.stdout
    assert [entry["file"] for entry in found["certificates"] if entry["problem"]] == [pem]
    assert len(found["certificates"]) == 4
    guest.is_whole_on("hv1")
