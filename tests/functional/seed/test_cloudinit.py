"""The volume for cloud-init: its content, its attachment by init, and its removal by purge."""

import base64
import dataclasses
import email
import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from saltvirt import errors
from saltvirt.seed import SeedData, backends, cloudinit, keys, nocloud
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


@needs_iso
def test_what_is_in_a_volume_is_read_back(tmp_path):
    path = str(tmp_path / "v.iso")
    files = {"user-data": "é" * 5000, "meta-data": "m\n", "network-config": ""}
    nocloud.write(path, files)
    assert nocloud.read(path) == files
    for content in (b"", bytes(40000), (tmp_path / "v.iso").read_bytes()[:40960]):
        (tmp_path / "bad.iso").write_bytes(content)
        with pytest.raises(errors.SeedFailed, match="cannot read the cloud-init volume"):
            nocloud.read(str(tmp_path / "bad.iso"))


@pytest.fixture(scope="module")
def other():
    private, public = keys.generate()
    return SeedData("web2", private, public, master="10.0.0.1", hostname="web2")


@pytest.mark.parametrize("extra", [None, "#!/bin/sh\necho é {\n"])
@pytest.mark.parametrize("install", ["never", "image"])
def test_a_volume_of_another_identity_has_nothing_of_the_old_one(data, other, extra, install):
    data = dataclasses.replace(data, install=install)
    network = cloudinit.network_config(NICS)
    files = {
        "user-data": cloudinit.user_data(data, extra), "meta-data": cloudinit.meta_data(data.id),
        "network-config": network,
    }  # fmt: skip
    made = cloudinit.reissued(files, other, {})
    wanted = cloudinit.user_data(dataclasses.replace(other, install=install), extra)
    assert made["network-config"] == network
    found = [_configuration(text) for text in (made["user-data"], wanted)]
    for one in found:
        one["write_files"] = {file["path"]: file for file in one["write_files"]}
        one["write_files"].pop("/etc/salt/pki/minion/minion_master.pub", None)
        one["write_files"].pop("/etc/salt/pki/minion/master_sign.pub", None)
    assert found[0] == found[1]
    before, after = (json.loads(text["meta-data"]) for text in (files, made))
    assert after == {**before, "local-hostname": "web2"}, "it is no other instance"
    if extra:
        parts = list(email.message_from_string(made["user-data"]).walk())
        assert parts[-1].get_payload(decode=True).decode() == extra


def _configuration(text):
    if not text.startswith("#"):
        message = email.message_from_string(text)
        text = next(iter(message.get_payload())).get_payload(decode=True).decode()
    return json.loads(text.partition("\n")[2])


def test_a_copys_volume_is_bound_to_its_cards_and_has_no_fixed_address(data, other):
    files = {
        "user-data": cloudinit.user_data(data), "meta-data": cloudinit.meta_data(data.id),
        "network-config": cloudinit.network_config(NICS),
    }  # fmt: skip
    macs = {"52:54:00:00:00:01": "52:54:00:00:00:0a", "52:54:00:00:00:02": "52:54:00:00:00:01"}
    made = json.loads(cloudinit.reissued(files, other, macs)["network-config"])
    first, second = made["ethernets"].values()
    assert first == {"match": {"macaddress": "52:54:00:00:00:0a"}, "dhcp4": True}
    assert second["match"] == {"macaddress": "52:54:00:00:00:01"}
    assert second["dhcp4"] is True and not {"addresses", "routes"} & {*second}


@pytest.mark.parametrize("missing", ["user-data", "meta-data", "ours"])
def test_a_volume_that_we_did_not_write_is_not_changed(data, other, missing):
    files = {"user-data": cloudinit.user_data(data), "meta-data": cloudinit.meta_data(data.id)}
    files[missing] = "#!/bin/sh\n"
    if missing == "ours":
        files["user-data"] = "#cloud-config\nruncmd: []\n"
    with pytest.raises(errors.SeedFailed, match="was not written by Salt Virt"):
        cloudinit.reissued(files, other, {})


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
@pytest.mark.parametrize("verb", ["virt.rename", "virt.clone"])
def test_by_another_name_cloud_init_and_the_disk_say_the_same(tmp_path, host, monkeypatch, verb):
    """Whether cloud-init has read its volume already nobody knows."""
    seeded = []
    monkeypatch.setattr(backends, "apply", lambda _path, _format, data, _by: seeded.append(data))
    modules, images, image, conn = host
    nics = [{"name": "eth0", "type": "user", "addresses": ["192.0.2.9/24"]}]
    more = {"interfaces": nics, "seed": "cloud-init", "user_data": "#!/bin/sh\necho own\n"}
    old = init(modules, image, **more)
    made = modules[verb]("web1", "web2", approve_key=False)
    assert made["pub_key"] != old["pub_key"]
    (tmp_path / "out").mkdir()
    texts = read_iso(images / "_seed" / "web2.iso", tmp_path / "out")
    config = _configuration(texts["user-data"])
    files = {one["path"]: base64.b64decode(one["content"]) for one in config["write_files"]}
    *_, own = email.message_from_string(texts["user-data"]).walk()
    assert (config["hostname"], own.get_payload(decode=True)) == ("web2", b"#!/bin/sh\necho own\n")
    assert files["/etc/salt/minion_id"] == b"web2"
    assert files["/etc/salt/pki/minion/minion.pub"].decode() == made["pub_key"]
    [data] = seeded
    assert (data.id, data.public_key, data.install) == ("web2", made["pub_key"], "cloud-init")
    [nic] = json.loads(texts["network-config"])["ethernets"].values()
    mac = ET.fromstring(conn.lookupByName("web2").XMLDesc()).find("devices/interface/mac")
    assert nic["match"] == {"macaddress": mac.get("address")}
    assert ("addresses" in nic) is (verb == "virt.rename")
    assert (images / "_seed" / "web1.iso").exists() is (verb == "virt.clone")
    modules["virt.purge"]("web2")
    assert not (images / "_seed" / "web2.iso").exists()
    assert (images / "_seed" / "web1.iso").exists() is (verb == "virt.clone")


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
