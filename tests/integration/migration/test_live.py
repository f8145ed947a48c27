"""Migration of a running guest with its disk: nothing is lost, and nothing is left."""

import json
import re

import pytest

from tests.integration.migration import counter, sniff

pytestmark = pytest.mark.lab


def migrate(lab, name, target, **asked):
    """What virt.migrate on the guest's host returns; the host is found."""
    done = lab.run("virt.migrate", name, target, **asked)
    assert done.rc == 0, done.stdout + done.stderr
    return done.stdout


def used_kib(lab, host, path):
    return int(lab.exec(host, ["du", "-k", path]).stdout.split()[0])


def test_there_and_back_encrypted_thin_and_whole(cloud, guests):
    guest = guests("mig1").define("hv1").fill("hv1", 30, sniff.PATTERN)
    cloud.exec("hv1", ["virsh", "autostart", "mig1"])
    guest.start("hv1")
    before = used_kib(cloud, "hv1", guest.disk)
    with sniff.on(cloud, "hv1") as heard:
        out = migrate(cloud, "mig1", "hv2")
    assert re.search(r"moved from hv1 to hv2 over TLS in .* downtime \d+ ms", out)
    assert heard.bytes_seen() > 20 * 2**20, "the disk did not go over this wire"
    assert heard.pattern_seen() is False, "the disk's content was readable on the wire"
    guest.is_whole_on("hv2")
    assert used_kib(cloud, "hv2", guest.disk) <= before * 1.05 + 1024
    assert "enable" in cloud.exec("hv2", "virsh dominfo mig1 | grep Autostart").stdout
    assert "yes" in cloud.exec("hv2", "virsh dominfo mig1 | grep Persistent").stdout
    migrate(cloud, "mig1", "")  # no target: placement takes the other host
    guest.is_whole_on("hv1")
    assert cloud.exec("hv2", ["virsh", "pool-list", "--all", "--name"]).stdout.split() == []


@pytest.mark.slow
def test_a_raw_disk_stays_sparse(cloud, guests):
    guest = guests("mig2", format="raw", driver=" discard='unmap'")
    guest.define("hv1").fill("hv1", 5).start("hv1")
    migrate(cloud, "mig2", "hv2")
    guest.is_whole_on("hv2")
    assert used_kib(cloud, "hv2", guest.disk) < 20 * 1024


def test_an_overlay_takes_its_base_along_and_stays_one(cloud, guests):
    base = f"{counter.IMAGES}/mig3_base.qcow2"
    cloud.exec("hv1", f"qemu-img create -q -f qcow2 {base} 1G")
    cloud.exec("hv1", f"qemu-io -c 'write -P 7 500M 20M' {base}")
    guest = guests("mig3", base=base).define("hv1").fill("hv1", 5).start("hv1")
    answer = cloud.call("hv1", "virt.migrate", "mig3", "hv2", timeout=120)
    assert answer["disks"] == {"vda": "overlay"}
    assert answer["deleted"] == [guest.disk]
    assert answer["disk_bytes"] < 10 * 2**20
    info = cloud.exec("hv2", ["qemu-img", "info", "-U", "--output=json", guest.disk]).stdout
    assert json.loads(info)["backing-filename"] == base
    cloud.exec("hv2", f"qemu-io -r -U -c 'read -P 7 500M 20M' {guest.disk}")
    cloud.exec("hv1", ["rm", base])  # the image stayed there; is_whole_on wants a clean host
    guest.is_whole_on("hv2")


@pytest.mark.slow
def test_another_image_of_the_same_name_is_noticed(cloud, guests):
    base = f"{counter.IMAGES}/mig4_base.qcow2"
    for host, pattern in (("hv1", 7), ("hv2", 8)):
        cloud.exec(host, f"qemu-img create -q -f qcow2 {base} 1G")
        cloud.exec(host, f"qemu-io -c 'write -P {pattern} 500M 1M' {base}")
    guest = guests("mig4", base=base).define("hv1")
    answer = cloud.call("hv1", "virt.migratable", "mig4", "hv2", timeout=60)
    assert not answer["migratable"]
    assert "another " + base in answer["reasons"][0]
    assert guest.files("hv2") == ["mig4_base.qcow2"]


def test_every_reason_in_one_answer_and_nothing_changed(cloud, guests):
    nic = "<interface type='network'><source network='nowhere'/></interface>"
    guest = guests("mig5", memory=64, devices=nic)
    guest.xml = guest.xml.replace("<memory unit='MiB'>64<", "<memory unit='GiB'>900<").replace(
        "<vcpu>", "<currentMemory unit='MiB'>64</currentMemory><vcpu>"
    )
    guest.define("hv1")
    cloud.exec("hv2", ["touch", guest.disk])
    cloud.exec("hv1", ["virsh", "managedsave-remove", "mig5"], check=False)
    done = cloud.run("virt.migrate", "mig5", "hv2")
    assert done.rc == 1
    for reason in (
        "no network nowhere",
        f"already has {guest.disk}",
        "921600 MiB of memory requested",
    ):
        assert reason in done.stdout
    assert guest.states() == {"hv1": "shut off"}
    assert used_kib(cloud, "hv2", guest.disk) == 0


def test_what_was_promised_to_another_guest_is_taken(cloud, guests):
    guests("mig10").define("hv1")
    promises = "/var/lib/salt-virt/arrivals"
    cloud.exec("hv2", f"mkdir -p {promises}; touch {promises}/other~943718400~1~$(date +%s)")
    try:
        answer = cloud.call("hv1", "virt.migratable", "mig10", "hv2", timeout=60)
        inventory = cloud.call("hv2", "virt.answer", "virt.inventory")["said"]["return"]
    finally:
        cloud.exec("hv2", f"rm {promises}/other~*")
    assert list(inventory["arriving"]) == ["other"]
    [reason] = answer["reasons"]
    assert reason.startswith("hv2: 128 MiB of memory requested and ")


@pytest.mark.slow
def test_without_qemus_certificate_it_fails_and_never_goes_in_plaintext(cloud, guests):
    guest = guests("mig6").define("hv1").start("hv1")
    cloud.exec("hv1", "mv /etc/pki/qemu/client-cert.pem /etc/pki/qemu/away")
    try:
        done = cloud.run("virt.migrate", "mig6", "hv2")
    finally:
        cloud.exec("hv1", "mv /etc/pki/qemu/away /etc/pki/qemu/client-cert.pem")
    assert done.rc == 1
    assert "mig6 runs on hv1" in done.stdout
    guest.is_whole_on("hv1")


def test_where_libvirt_does_not_answer_nothing_happens(cloud, guests):
    guest = guests("mig7").define("hv1")
    units = "libvirtd-tls.socket libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd"
    cloud.exec("hv2", f"systemctl stop {units}")
    try:
        answer = cloud.call("hv1", "virt.migrate", "mig7", "hv2", timeout=60)
    finally:
        cloud.exec("hv2", f"systemctl start {units}")
    assert "cannot migrate mig7" in answer
    assert "qemu+tls://hv2/system" in answer
    assert guest.states() == {"hv1": "shut off"}


def test_abort(cloud, guests):
    guest = guests("mig8").define("hv1", "256M").fill("hv1", 60).start("hv1")
    cloud.exec("master", "salt --async hv1 virt.migrate mig8 hv2 max_bandwidth=1")
    cloud.wait(lambda: guest.files("hv2"), "the target is prepared")
    cloud.wait(lambda: cloud.call("hv1", "virt.migrate_abort", "mig8") is True, "it is aborted")
    cloud.wait(lambda: not counter.unfinished(cloud, "hv1"), "it is over")
    assert guest.files("hv2"), "the source alone cannot tell whether somebody uses them"
    guest.clear()
    guest.is_whole_on("hv1")
    assert "not being migrated" in cloud.call("hv1", "virt.migrate_abort", "mig8")


def test_the_killed_minion_and_the_second_call(cloud, guests):
    guest = guests("mig9").define("hv1", "256M").fill("hv1", 60).start("hv1")
    cloud.exec("master", "salt --async hv1 virt.migrate mig9 hv2 max_bandwidth=8")
    cloud.wait(lambda: counter.copying(cloud, "mig9"), "libvirt copies its disk")
    cloud.kill("hv1", "bin/salt-minion")
    cloud.exec("hv1", ["systemctl", "restart", "salt-minion"])
    cloud.wait(lambda: guest.states() == {"hv2": "running"}, "libvirt carries it on")
    cloud.wait_for_minion("hv1")
    assert guest.files("hv1"), "the source's disk waits for the clean-up"
    # it ends what the killed one began, or libvirt's end of it was noticed before
    said = migrate(cloud, "mig9", "hv2")
    assert "mig9 is on hv2 already" in said or "was completed: it is on hv2" in said
    guest.is_whole_on("hv2")


@pytest.mark.parametrize(
    ("fun", "words"),
    [
        ("virt.seed_non_shared_migrate", "virt.migrate NAME HOST"),
        ("virt.migrate_non_shared", "virt.migrate mig hv2 copy_storage=all"),
        ("virt.migrate_non_shared_inc", "virt.migrate mig hv2 copy_storage=incremental"),
    ],
)
def test_the_old_calls_point_to_the_new_one(cloud, fun, words):
    args = ({},) if "seed" in fun else ("mig", "hv2")
    assert words in cloud.call("hv1", fun, *args)
