"""Seeds real folders and real disks. What needs guestfish is skipped where it is missing."""

import os
import shutil
import subprocess

import pytest

from saltvirt import errors, seed
from saltvirt.seed import guestfish, keys
from saltvirt.seed.data import minion_config, to_yaml
from saltvirt.seed.tree import DirTree

needs_guestfish = pytest.mark.skipif(not shutil.which("guestfish"), reason="no guestfish here")
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def pair():
    return keys.generate()


@pytest.fixture
def data(pair):
    return seed.SeedData(
        id="web1.example.org",
        private_key=pair[0],
        public_key=pair[1],
        master=["10.0.0.1", "10.0.0.2"],
        master_public_key="MASTER\n",
        hostname="web1.example.org",
        grains={"role": "web", "note": 'a "quote": é ☃ \n {}'},
        autosign_grains={"ticket": "42"},
        startup_states=["base.first", "web"],
    )


def system(root):
    """The files of a Debian-like system that seeding touches."""
    for name, text in {
        "etc/hostname": "image\n",
        "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 image\n",
        "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
        "etc/resolv.conf": "nameserver 192.0.2.1\n",
        "etc/ssh/ssh_host_rsa_key": "baked in\n",
        "etc/ssh/sshd_config": "UsePAM yes\n",
        "etc/salt/minion": "id: baked\nmaster: elsewhere\n",
        "etc/salt/minion_id": "baked",
        "etc/salt/minion.d/master.conf": "master: elsewhere\n",
        "etc/salt/pki/minion/minion.pem": "baked in\n",
        "etc/salt/pki/minion/minion_master.pub": "elsewhere's\n",
        "usr/lib/systemd/system/multi-user.target": "[Unit]\n",
        "usr/lib/systemd/system/salt-minion.service": "[Unit]\n",
        "usr/bin/salt-minion": "#!/bin/sh\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def expect_seeded(tree, data):
    """What is the same whichever back end did it."""
    yaml = pytest.importorskip("yaml")
    for path in ("/etc/salt/minion", "/etc/salt/minion.d/zz-salt-virt.conf"):
        config = yaml.safe_load(tree.read(path))
        assert config["id"] == "web1.example.org"
        assert config["master"] == ["10.0.0.1", "10.0.0.2"]
        assert config["grains"] == {**data.grains, "ticket": "42"}
        assert config["autosign_grains"] == ["ticket"]
        assert (config["startup_states"], config["sls_list"]) == ("sls", ["base.first", "web"])
    assert tree.read("/etc/salt/minion_id") == b"web1.example.org"
    assert tree.read("/etc/salt/pki/minion/minion.pem").decode() == data.private_key
    assert tree.read("/etc/salt/pki/minion/minion.pub").decode() == data.public_key
    assert tree.read("/etc/salt/pki/minion/minion_master.pub") == b"MASTER\n"
    assert tree.read("/etc/hostname") == b"web1.example.org\n"
    assert b"127.0.1.1 web1.example.org web1\n" in tree.read("/etc/hosts")
    assert tree.read("/etc/machine-id") == b""
    assert tree.read("/etc/resolv.conf") == b"nameserver 192.0.2.1\n"
    assert tree.names("/etc/ssh") == ["sshd_config"]
    assert "salt-minion.service" in tree.names("/etc/systemd/system/multi-user.target.wants")
    assert "salt-virt-ssh-keys.service" in tree.names("/etc/systemd/system")


# -- keys and configuration ---------------------------------------------------------------


def test_keys_belong_together_and_differ_each_time(pair):
    assert pair[0].startswith("-----BEGIN ")
    assert pair[1].startswith("-----BEGIN PUBLIC KEY-----")
    assert keys.pair(*pair) == pair
    assert keys.generate() != pair
    with pytest.raises(errors.InvalidInput, match="does not belong"):
        keys.pair(pair[0], keys.generate()[1])
    with pytest.raises(errors.InvalidInput, match="priv_key"):
        keys.pair("nonsense", None)
    with pytest.raises(errors.InvalidInput):
        keys.generate(512)


def test_salt_reads_the_keys(pair, tmp_path):
    crypt = pytest.importorskip("salt.crypt")
    (tmp_path / "minion.pem").write_text(pair[0])
    (tmp_path / "minion.pub").write_text(pair[1])
    signature = crypt.PrivateKey.from_file(str(tmp_path / "minion.pem")).sign(b"x")
    assert crypt.PublicKey.from_file(str(tmp_path / "minion.pub")).verify(b"x", signature)


def test_the_private_key_is_in_no_message(data):
    assert data.private_key not in repr(data)


def test_what_is_no_plain_data_is_refused(data):
    with pytest.raises(errors.InvalidInput, match="'x'"):
        to_yaml({"x": object()})
    with pytest.raises(errors.InvalidInput):
        seed.SeedData(id="../x", private_key="", public_key="")
    assert minion_config(data)["id"] == "web1.example.org"


# -- a folder -----------------------------------------------------------------------------


def test_a_folder_is_seeded(tmp_path, data):
    root = system(tmp_path / "root")
    assert seed.apply(str(root), None, data) == "directory"
    expect_seeded(DirTree(root), data)
    pki = root / "etc/salt/pki/minion"
    assert (pki / "minion.pem").stat().st_mode & 0o777 == 0o400
    assert (pki / "minion.pub").stat().st_mode & 0o777 == 0o600
    assert pki.stat().st_mode & 0o777 == 0o700


def test_without_the_masters_key_the_images_own_is_gone(tmp_path, pair):
    root = system(tmp_path / "root")
    seed.apply(str(root), None, seed.SeedData("web1", *pair, master="10.0.0.1"))
    assert not (root / "etc/salt/pki/minion/minion_master.pub").exists()
    assert (root / "etc/hostname").read_text() == "image\n"


def test_resets_are_options(tmp_path, pair):
    root = system(tmp_path / "root")
    seed.apply(
        str(root),
        None,
        seed.SeedData("web1", *pair, reset_machine_id=False, reset_ssh_keys=False),
    )
    assert (root / "etc/machine-id").read_text().startswith("0123")
    assert (root / "etc/ssh/ssh_host_rsa_key").exists()


def test_links_in_the_guest_never_lead_to_the_host(tmp_path, data):
    outside = tmp_path / "host"
    (outside / "pki").mkdir(parents=True)
    (outside / "hostname").write_text("the host's\n")
    root = system(tmp_path / "root")
    (root / "etc/hostname").unlink()
    (root / "etc/hostname").symlink_to(outside / "hostname")
    shutil.rmtree(root / "etc/salt")
    (root / "etc/salt").symlink_to("../../../../../.." + str(outside))
    seed.apply(str(root), None, data)
    assert (outside / "hostname").read_text() == "the host's\n"
    assert sorted(os.listdir(outside)) == ["hostname", "pki"]
    assert os.listdir(outside / "pki") == []
    tree = DirTree(root)
    assert tree.read("/etc/salt/pki/minion/minion.pem").decode() == data.private_key
    (root / "etc/loop").symlink_to("loop")
    with pytest.raises(errors.SeedFailed, match="circle"):
        tree.read("/etc/loop")


def test_no_system_and_no_minion_are_told_apart(tmp_path, data):
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.SeedFailed, match="no operating system"):
        seed.apply(str(tmp_path / "empty"), None, data)
    root = system(tmp_path / "root")
    (root / "usr/bin/salt-minion").unlink()
    with pytest.raises(errors.SeedFailed, match="no salt-minion"):
        seed.apply(str(root), None, data)


def test_a_minion_is_installed_at_the_first_boot(tmp_path, pair):
    root = system(tmp_path / "root")
    (root / "usr/bin/salt-minion").unlink()
    data = seed.SeedData(
        "web1", *pair, install="boot", bootstrap=lambda: "#!/bin/sh\n", bootstrap_args="-X stable"
    )
    seed.apply(str(root), None, data)
    unit = root / "etc/systemd/system/salt-virt-bootstrap.service"
    assert "bootstrap.sh -X stable" in unit.read_text()
    assert (root / "var/lib/salt-virt/bootstrap.sh").read_text() == "#!/bin/sh\n"
    wants = root / "etc/systemd/system/multi-user.target.wants/salt-virt-bootstrap.service"
    assert os.readlink(wants) == "/etc/systemd/system/salt-virt-bootstrap.service"
    assert (root / "etc/salt/pki/minion/minion.pem").exists()


# -- disks --------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path):
    """A qcow2 with one ext4 partition, made without mounting anything."""
    root = system(tmp_path / "tree")
    raw, path = tmp_path / "d.raw", tmp_path / "d.qcow2"
    with open(raw, "wb") as file:
        file.truncate(200 * MIB)
    table = b"label: dos\nstart=2048, type=83, bootable\n"
    subprocess.run(["sfdisk", "-q", raw], input=table, check=True)
    subprocess.run(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-d", root, "-E", "offset=1048576", raw, "199M"],
        check=True,
    )
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, path], check=True)
    return path


@needs_guestfish
def test_a_disk_is_seeded_and_clean_afterwards(tmp_path, disk, data):
    assert seed.apply(str(disk), "qcow2", data) == "libguestfs"
    with guestfish.opened(str(disk), "qcow2") as tree:
        expect_seeded(tree, data)
        assert tree._text("stat", "/etc/salt/pki/minion/minion.pem").count("mode: 33024") == 1
    raw = tmp_path / "after.raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", disk, raw], check=True)
    fsck = ["e2fsck", "-fn", f"{raw}?offset=1048576"]
    assert subprocess.run(fsck, check=False, capture_output=True).returncode == 0


@needs_guestfish
def test_a_disk_without_a_system_is_refused_and_let_go(tmp_path, pair):
    disk = tmp_path / "blank.raw"
    with open(disk, "wb") as file:
        file.truncate(20 * MIB)
    with pytest.raises(errors.SeedFailed, match=str(disk)):
        seed.apply(str(disk), "raw", seed.SeedData("web1", *pair))
    seed.prove_free(str(disk), "raw")


# -- as the hypervisor's minion does it ---------------------------------------------------


@pytest.fixture
def hypervisor(tmp_path):
    """What the adapter hands in, with the hypervisor's own minion trusting MASTER."""
    pki = tmp_path / "hv-pki"
    pki.mkdir()
    (pki / "minion_master.pub").write_text("MASTER\n")
    settings = {"virt:seed:config": {"log_level": "info"}, "virt:seed:backend": "directory"}
    script = tmp_path / "bootstrap.sh"
    script.write_text("#!/bin/sh\n")
    call = {
        "config.get": lambda key, default=None: settings.get(key, default),
        "config.gather_bootstrap_script": lambda: str(script),
    }
    from saltvirt.seed import minion

    return minion.Hypervisor(call, {"master": "10.0.0.1", "pki_dir": str(pki)})


def test_a_guest_trusts_its_hypervisors_master(tmp_path, hypervisor):
    from saltvirt.seed.minion import Wish

    yaml = pytest.importorskip("yaml")
    root = system(tmp_path / "root")
    public = hypervisor.apply("web1", str(root), None, Wish(grains={"role": "web"}))
    assert (root / "etc/salt/pki/minion/minion.pub").read_text() == public
    assert (root / "etc/salt/pki/minion/minion_master.pub").read_text() == "MASTER\n"
    config = yaml.safe_load((root / "etc/salt/minion").read_text())
    assert config["master"] == "10.0.0.1"
    assert config["log_level"] == "info"
    assert (root / "etc/hostname").read_text() == "web1\n"


def test_another_master_is_not_trusted_by_our_masters_key(tmp_path, hypervisor):
    from saltvirt.seed.minion import Wish

    data = hypervisor.data("web1", Wish(config={"master": "other"}))
    assert data.master_public_key is None
    assert hypervisor.bootstrap() == "#!/bin/sh\n"
    with pytest.raises(errors.InvalidInput, match="both"):
        hypervisor.data("web1", Wish(pub_key="x"))
