"""Shared storage, and transports other than QEMU's own TLS."""

import pytest

from tests.integration.migration import counter, shared, sniff

pytestmark = pytest.mark.lab


@pytest.fixture
def common(cloud, tmp_path_factory):
    shared.mount(cloud, tmp_path_factory.mktemp("shared"))
    yield shared.FOLDER
    shared.unmount(cloud)


def migrate(lab, name, target, **asked):
    """What virt.migrate on hv1 returns."""
    answer = lab.call("hv1", "virt.migrate", name, target, timeout=180, **asked)
    assert isinstance(answer, dict), answer
    return answer


def test_a_shared_disk_is_not_copied_and_not_removed(cloud, guests, common):
    guest = guests("share1", folder=common, driver=" cache='none'").define("hv1").start("hv1")
    for asked, words in (({"copy_storage": "all"}, "onto itself"), ({}, None)):
        answer = cloud.call("hv1", "virt.migratable", "share1", "hv2", timeout=60, **asked)
        assert answer["disks"] == {"vda": "shared"}
        assert answer["migratable"] == (words is None)
        assert not words or words in answer["reasons"][0]
    answer = migrate(cloud, "share1", "hv2", tunnel=True)
    assert answer["transport"] == "TLS, tunnelled"
    assert (answer["disks"], answer["deleted"]) == ({"vda": "shared"}, [])
    assert guest.states() == {"hv2": "running"}
    guest.counts_on("hv2")
    assert len(guest.records("hv2")) > 5
    assert cloud.exec("hv1", ["ls", common]).stdout.split() == ["share1_vda.qcow2"]


@pytest.mark.slow
def test_a_tunnel_for_what_it_cannot_carry_is_refused(cloud, guests):
    guest = guests("tunnel1").define("hv1").start("hv1")
    answer = cloud.call("hv1", "virt.migrate", "tunnel1", "hv2", tunnel=True, timeout=60)
    assert "set virt:tunnel to False" in answer
    guest.is_whole_on("hv1")


@pytest.mark.slow
def test_plaintext_only_when_it_is_named(cloud, guests):
    guest = guests("tcp1").define("hv1").fill("hv1", 10, sniff.PATTERN).start("hv1")
    answer = cloud.call("hv1", "virt.migrate", "tcp1", "qemu+tcp://hv2/system", timeout=60)
    assert "Connection refused" in answer
    config = "/etc/libvirt/libvirtd.conf"
    cloud.exec("hv2", f"cp {config} /root/libvirtd.conf; echo 'auth_tcp = \"none\"' >> {config}")
    cloud.exec("hv2", "systemctl stop libvirtd; systemctl start libvirtd-tcp.socket")
    try:
        with sniff.on(cloud, "hv1") as heard:
            answer = migrate(cloud, "tcp1", "qemu+tcp://hv2/system")
    finally:
        cloud.exec("hv2", f"cp /root/libvirtd.conf {config}")
        cloud.exec("hv2", "systemctl stop libvirtd-tcp.socket libvirtd")
        cloud.exec("hv2", "systemctl start libvirtd-tls.socket libvirtd.socket")
    assert answer["transport"] == "TCP without encryption"
    assert heard.pattern_seen(), "this test could not see plaintext: it proves nothing"
    guest.is_whole_on("hv2")


@pytest.mark.slow
def test_ssh(cloud, guests):
    guest = guests("ssh1").define("hv1").start("hv1")
    cloud.exec("hv1", "test -e /root/.ssh/id_ed25519 || ssh-keygen -q -t ed25519 -N '' "
               "-f /root/.ssh/id_ed25519")  # fmt: skip
    key = cloud.exec("hv1", ["cat", "/root/.ssh/id_ed25519.pub"]).stdout
    cloud.exec("hv2", "mkdir -p -m 700 /root/.ssh && cat >> /root/.ssh/authorized_keys", input=key)
    cloud.exec("hv2", "ssh-keygen -A && mkdir -p /run/sshd && /usr/sbin/sshd")
    cloud.exec("hv1", "ssh-keyscan hv2 > /root/.ssh/known_hosts 2>/dev/null")
    try:
        answer = migrate(cloud, "ssh1", "qemu+ssh://root@hv2/system")
    finally:
        cloud.exec("hv2", "kill $(cat /run/sshd.pid); rm -r /root/.ssh")
    assert answer["transport"] == "SSH"
    guest.is_whole_on("hv2")


@pytest.fixture
def image(cloud):
    """An image on hv1 with a name as the image cache gives, too long to copy in an instant."""
    folder = f"{counter.IMAGES}/_base"
    path = f"{folder}/pair-0123456789abcdef.qcow2"
    cloud.exec("hv1", f"mkdir -p {folder} && qemu-img create -q -f qcow2 {path} 1G")
    cloud.exec("hv1", f"qemu-io -c 'write -P 7 500M 400M' {path}")
    yield path
    for host in cloud.hosts:
        cloud.exec(host, ["rm", "-rf", folder])


@pytest.mark.slow
def test_two_at_once_that_stand_on_one_image(cloud, guests, image):
    made = [guests(f"pair{i}", base=image).define("hv1").fill("hv1", 5) for i in (1, 2)]
    for guest in made:
        guest.start("hv1")
    for guest in made:
        cloud.exec("master", ["salt", "--async", "hv1", "virt.migrate", guest.name, "hv2"])
    for guest in made:
        cloud.wait(lambda g=guest: g.states() == {"hv2": "running"}, "both have moved", 120)
    cloud.wait(lambda: not counter.unfinished(cloud, "hv1"), "both are done")
    for guest in made:
        guest.is_whole_on("hv2")
    sums = [cloud.exec(host, ["sha256sum", image]).stdout for host in cloud.hosts]
    assert sums[0] == sums[1]
