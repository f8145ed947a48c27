"""The volume for cloud-init: what is in it, and that init attaches it and purge removes it."""

import base64
import email
import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from saltvirt import errors
from saltvirt.seed import SeedData, cloudinit, keys, nocloud
from tests.functional.conftest import load_with_folders

yaml = pytest.importorskip("yaml")
needs_iso = pytest.mark.skipif(not nocloud.available(), reason="no xorriso here")
NICS = [
    {"mac": "52:54:00:00:00:01"},
    {
        "mac": "52:54:00:00:00:02",
        "addresses": ["192.0.2.7/24", "2001:db8::7/64"],
        "gateways": ["192.0.2.1", "2001:db8::1"],
        "nameservers": ["192.0.2.53"],
        "search": ["example.org"],
    },
]


@pytest.fixture(scope="module")
def data():
    private, public = keys.generate()
    return SeedData(
        id="web1.example.org",
        private_key=private,
        public_key=public,
        master="10.0.0.1",
        master_public_key="MASTER\n",
        master_sign_key="SIGN\n",
        hostname="web1.example.org",
        grains={"role": "web"},
    )


def read_iso(path, folder):
    """{name: text} of the volume, read by another program than the one that wrote it."""
    argv = ["xorriso", "-osirrox", "on", "-indev", path, "-extract", "/", folder]
    subprocess.run(argv, check=True, capture_output=True)
    return {name: (folder / name).read_text() for name in os.listdir(folder)}


def written(config):
    found = {one["path"]: one for one in config["write_files"]}
    return {path: base64.b64decode(one["content"]).decode() for path, one in found.items()}, found


def test_the_minion_is_whole_in_our_user_data(data):
    text = cloudinit.user_data(data)
    assert text.startswith("#cloud-config\n")
    config = yaml.safe_load(text)
    texts, files = written(config)
    assert texts["/etc/salt/pki/minion/minion.pem"] == data.private_key
    assert files["/etc/salt/pki/minion/minion.pem"]["permissions"] == "0400"
    assert texts["/etc/salt/pki/minion/minion_master.pub"] == "MASTER\n"
    assert texts["/etc/salt/pki/minion/master_sign.pub"] == "SIGN\n"
    assert yaml.safe_load(texts["/etc/salt/minion"])["grains"] == {"role": "web"}
    assert (config["hostname"], config["fqdn"]) == ("web1", "web1.example.org")
    assert ["systemctl", "restart", "salt-minion"] in config["runcmd"]


def test_a_package_or_a_script_where_there_is_no_minion(data):
    from dataclasses import replace

    package = cloudinit.cloud_config(replace(data, install="image"))
    assert package["salt_minion"]["conf"]["id"] == data.id
    assert package["salt_minion"]["private_key"] == data.private_key
    script = cloudinit.cloud_config(
        replace(data, install="image", bootstrap=lambda: "#!/bin/sh\n", bootstrap_args="-X stable")
    )
    assert script["runcmd"][0][-2:] == ["-X", "stable"]
    assert written(script)[0]["/etc/salt/salt-virt-bootstrap.sh"] == "#!/bin/sh\n"


def test_the_operators_user_data_is_beside_ours(data):
    parts = email.message_from_string(
        cloudinit.user_data(data, "#!/bin/sh\necho é\n")
    ).get_payload()
    assert [part.get_content_type() for part in parts] == [
        "text/cloud-config",
        "text/x-shellscript",
    ]
    assert parts[1].get_payload(decode=True).decode() == "#!/bin/sh\necho é\n"
    with pytest.raises(errors.InvalidInput, match="user_data"):
        cloudinit.user_data(data, "packages: [vim]\n")


def test_the_network_by_mac_addresses():
    found = json.loads(cloudinit.network_config(NICS))["ethernets"]
    assert found["nic0"] == {"match": {"macaddress": "52:54:00:00:00:01"}, "dhcp4": True}
    assert found["nic1"]["addresses"] == ["192.0.2.7/24", "2001:db8::7/64"]
    assert found["nic1"]["routes"] == [
        {"to": "0.0.0.0/0", "via": "192.0.2.1"},
        {"to": "::/0", "via": "2001:db8::1"},
    ]
    assert found["nic1"]["nameservers"]["search"] == ["example.org"]


def test_a_host_that_can_make_no_volume_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not nocloud.available()
    with pytest.raises(errors.Unsupported, match="install xorriso, genisoimage or mkisofs"):
        nocloud.write(str(tmp_path / "x.iso"), {"user-data": "u"})
    assert not (tmp_path / "x.iso").exists()


@needs_iso
def test_the_volume_is_called_cidata_and_roots_alone(tmp_path):
    path = tmp_path / "x.iso"
    nocloud.write(str(path), {"user-data": "u\n", "meta-data": "m\n"})
    assert path.read_bytes()[0x8028:0x802E].decode().lower() == "cidata"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["x.iso"]
    (tmp_path / "out").mkdir()
    if shutil.which("xorriso"):
        assert read_iso(path, tmp_path / "out") == {"user-data": "u\n", "meta-data": "m\n"}


# -- init -----------------------------------------------------------------------------------


@pytest.fixture
def host(conn, tmp_path):
    """(the module functions, the images folder, an image, libvirt's test driver)."""
    modules = load_with_folders(tmp_path)
    images = tmp_path / "images"
    image = tmp_path / "debian.raw"
    image.write_bytes(bytes(510) + b"\x55\xaa")
    os.truncate(image, 8 * 1024 * 1024)
    return modules, images, str(image), conn


def init(modules, image, **more):
    # there is no master to hand the key to
    more = {"start": False, "nic": None, "approve_key": False, **more}
    return modules["virt.init"]("web1", 1, 64, image=image, **more)


@needs_iso
def test_init_attaches_the_volume_and_purge_takes_it_away(tmp_path, host):
    modules, images, image, conn = host
    made = init(modules, image, seed="cloud-init", user_data="#!/bin/sh\n")
    assert made["pub_key"].startswith("-----BEGIN PUBLIC KEY-----")
    iso = images / "_seed" / "web1.iso"
    tree = ET.fromstring(conn.lookupByName("web1").XMLDesc())
    drives = tree.findall("devices/disk[@device='cdrom']")
    assert [drive.find("source").get("file") for drive in drives] == [str(iso)]
    (tmp_path / "out").mkdir()
    texts = read_iso(iso, tmp_path / "out")
    assert json.loads(texts["meta-data"])["local-hostname"] == "web1"
    assert made["pub_key"] in texts["user-data"] or "base64" in texts["user-data"]
    modules["virt.purge"]("web1")
    assert not iso.exists()
    assert os.path.exists(image)


@needs_iso
def test_the_volume_has_the_addresses_of_its_interfaces(tmp_path, host):
    modules, images, image, conn = host
    nics = [{"name": "eth0", "type": "user", "addresses": ["192.0.2.9/24"]}]
    init(modules, image, interfaces=nics, seed="cloud-init")
    (tmp_path / "out").mkdir()
    texts = read_iso(images / "_seed" / "web1.iso", tmp_path / "out")
    [nic] = json.loads(texts["network-config"])["ethernets"].values()
    mac = ET.fromstring(conn.lookupByName("web1").XMLDesc()).find("devices/interface/mac")
    assert (nic["match"], nic["addresses"]) == (
        {"macaddress": mac.get("address")}, ["192.0.2.9/24"],
    )  # fmt: skip
    modules["virt.purge"]("web1")


@needs_iso
def test_a_failure_after_the_volume_leaves_nothing(host):
    modules, images, image, conn = host
    with pytest.raises(errors.VirtError, match="user_data"):
        init(modules, image, seed="cloud-init", user_data="nonsense")
    assert [name for name in os.listdir(images) if os.listdir(images / name)] == []
    assert "web1" not in [dom.name() for dom in conn.listAllDomains()]


def test_user_data_without_cloud_init_is_refused(host):
    modules, _images, image, _conn = host
    with pytest.raises(errors.InvalidInput, match="cloud-init"):
        init(modules, image, user_data="#!/bin/sh\n")
    with pytest.raises(errors.InvalidInput, match="prefix"):
        nics = [{"name": "eth0", "type": "user", "addresses": ["192.0.2.9"]}]
        init(modules, image, interfaces=nics, seed="cloud-init")
