"""Migration of a stopped guest: definition, disks, firmware variables, snapshots, autostart."""

import pytest

from tests.integration.migration import counter

pytestmark = pytest.mark.lab
UEFI = """<os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type></os>"""


def sums(lab, host, *paths):
    return lab.exec(host, ["sha256sum", *paths]).stdout


def test_all_that_belongs_to_it_comes_along(cloud, guests):
    guest = guests("cold1")
    start, end = guest.xml.index("<os>"), guest.xml.index("</os>") + 5
    guest.xml = guest.xml[:start] + UEFI + guest.xml[end:]
    guest.define("hv1").fill("hv1", 10)
    cloud.exec("hv1", "virsh start cold1 && virsh destroy cold1")  # makes its variable store
    cloud.exec("hv1", ["virsh", "autostart", "cold1"])
    for name in ("one", "two"):
        cloud.exec("hv1", ["virsh", "snapshot-create-as", "cold1", name])
    nvram = "/var/lib/libvirt/qemu/nvram/cold1_VARS.fd"
    before = sums(cloud, "hv1", guest.disk, nvram)
    done = cloud.run("virt.migrate", "cold1", "hv2")
    assert done.rc == 0, done.stdout
    assert guest.states() == {"hv2": "shut off"}
    assert sums(cloud, "hv2", guest.disk, nvram) == before
    assert guest.files("hv1") == []
    assert cloud.exec("hv1", ["test", "!", "-e", nvram]).returncode == 0
    listed = cloud.exec("hv2", ["virsh", "snapshot-list", "cold1", "--name"]).stdout.split()
    assert listed == ["one", "two"]
    assert "two" in cloud.exec("hv2", "virsh snapshot-current cold1 --name").stdout
    assert "enable" in cloud.exec("hv2", "virsh dominfo cold1 | grep Autostart").stdout
    cloud.exec("hv2", "virsh start cold1 && virsh destroy cold1")


def test_an_overlay_and_its_base(cloud, guests):
    base = f"{counter.IMAGES}/cold2_base.qcow2"
    cloud.exec("hv1", f"qemu-img create -q -f qcow2 {base} 1G")
    cloud.exec("hv1", f"qemu-io -c 'write -P 7 500M 5M' {base}")
    guest = guests("cold2", base=base).define("hv1").fill("hv1", 5)
    before = sums(cloud, "hv1", guest.disk, base)
    done = cloud.run("virt.migrate", "cold2", "hv2")
    assert done.rc == 0, done.stdout
    assert sums(cloud, "hv2", guest.disk, base) == before
    assert guest.files("hv1") == ["cold2_base.qcow2"]
    guest.start("hv2")


def test_the_disk_before_an_external_snapshot_moves_too(cloud, guests):
    guest = guests("cold5").define("hv1").fill("hv1", 5)
    first = guest.disk
    cloud.exec("hv1", ["virsh", "snapshot-create-as", "cold5", "one", "--disk-only"])
    guest.disk = first.replace(".qcow2", ".one")
    before = sums(cloud, "hv1", guest.disk, first)
    answer = cloud.call("hv1", "virt.migrate", "cold5", "hv2", timeout=120)
    assert answer["disks"] == {"vda": "overlay"}
    assert sorted(answer["deleted"]) == [guest.disk, first]
    assert guest.files("hv1") == []
    assert sums(cloud, "hv2", guest.disk, first) == before
    assert "600" in cloud.exec("hv2", ["stat", "-c", "%a", first]).stdout
    assert cloud.exec("hv2", "virsh snapshot-list cold5 --name").stdout.split() == ["one"]
    guest.start("hv2")
    cloud.exec("hv2", "virsh blockcommit cold5 vda --active --pivot --wait")
    guest.counts_on("hv2")


def test_another_path_of_the_emulator_there(cloud, guests):
    """As from one distribution to another."""
    cloud.exec("hv1", "mkdir -p /opt/q && ln -s /usr/bin/qemu-system-x86_64 /opt/q/qemu-kvm")
    guest = guests("cold8", devices="<emulator>/opt/q/qemu-kvm</emulator>").define("hv1")
    done = cloud.run("virt.migrate", "cold8", "hv2")
    assert done.rc == 0, done.stdout
    text = cloud.exec("hv2", ["virsh", "dumpxml", "cold8"]).stdout
    assert "<emulator>/usr/bin/qemu-system-x86_64</emulator>" in text
    guest.start("hv2")
    cloud.exec("hv1", ["rm", "-r", "/opt/q"])


def test_two_overlays_at_once_on_an_image_that_the_target_lacks(cloud, guests):
    """The second starts there when the image is whole, not when its name is there."""
    base = f"{counter.IMAGES}/cold6_base.qcow2"
    cloud.exec("hv1", f"qemu-img create -q -f qcow2 {base} 1G")
    cloud.exec("hv1", f"qemu-io -c 'write -P 7 200M 300M' {base}")
    names = ["cold6", "cold7"]
    both = [guests(name, base=base).define("hv1") for name in names]
    calls = " ".join(f"salt -t 300 --out=json hv1 virt.migrate {name} hv2 & " for name in names)
    done = cloud.exec("master", f"{calls} wait").stdout
    assert done.count('"outcome": "moved"') == 2, done
    assert sums(cloud, "hv2", base) == sums(cloud, "hv1", base)
    for guest in both:
        assert guest.states() == {"hv2": "shut off"}
        cloud.exec("hv2", f"qemu-io -r -c 'read -P 7 200M 300M' {guest.disk}")
    assert cloud.exec("hv2", f"ls -A {counter.IMAGES} | grep coming", check=False).stdout == ""


def test_a_failure_leaves_nothing_behind(cloud, guests):
    """The target refuses the definition at the end, when all is copied."""
    guest = guests("cold3").define("hv1").fill("hv1", 5)
    cloud.exec("hv2", f"mkdir -p {counter.IMAGES} && touch /etc/libvirt/qemu/cold3.xml")
    cloud.exec("hv2", ["chattr", "+i", "/etc/libvirt/qemu"], check=False)
    immutable = "i" in cloud.exec("hv2", "lsattr -d /etc/libvirt/qemu", check=False).stdout[:20]
    if not immutable:
        pytest.skip("the lab's file system knows no immutable folders")
    try:
        done = cloud.run("virt.migrate", "cold3", "hv2")
    finally:
        cloud.exec("hv2", ["chattr", "-i", "/etc/libvirt/qemu"])
        cloud.exec("hv2", ["rm", "-f", "/etc/libvirt/qemu/cold3.xml"])
    assert done.rc == 1
    assert "cold3 stays on hv1" in done.stdout
    assert guest.states() == {"hv1": "shut off"}
    assert guest.files("hv2") == []
    assert counter.unfinished(cloud, "hv1") == []


def test_a_promise_holds_for_as_long_as_it_is_renewed(cloud, guests):
    """Its name has the time of the host that made it, its file that of the host that keeps it."""
    guests("cold5").define("hv1")
    folder = "/var/lib/salt-virt/arrivals"
    promise = f"{folder}/other~99999999999~1~1000"
    cloud.exec("hv2", f"mkdir -p {folder} && touch {promise}")
    try:
        assert "memory requested" in str(cloud.call("hv1", "virt.migratable", "cold5", "hv2"))
        cloud.exec("hv2", f"touch -d '2 hours ago' {promise}")
        assert cloud.call("hv1", "virt.migratable", "cold5", "hv2")["migratable"] is True
        left = cloud.exec("hv2", f"ls -A {folder}").stdout.split()
        assert left == ["other~99999999999~1~1000"], "nothing is left of the question"
    finally:
        cloud.exec("hv2", f"rm -f {promise}")


@pytest.mark.slow
def test_abort_of_a_copy(cloud, guests):
    guest = guests("cold4").define("hv1", "2G").fill("hv1", 900)
    cloud.exec("master", "salt --async hv1 virt.migrate cold4 hv2")
    cloud.wait(lambda: guest.files("hv2"), "the target is prepared", every_s=0.1)
    assert "was ended" in cloud.run("virt.migrate_abort", "cold4").stdout
    assert guest.states() == {"hv1": "shut off"}
    assert guest.files("hv2") == []
    assert counter.unfinished(cloud, "hv1") == []
