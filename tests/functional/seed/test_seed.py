"""Seeding of real folders and real disks. Tests that need guestfish are skipped where it is
missing."""

import configparser
import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from saltvirt import errors, seed
from saltvirt.seed import backends, firstboot, guest, keys
from saltvirt.seed.data import minion_config, to_yaml
from saltvirt.seed.tree import DirTree, FreeSpace
from saltvirt.system import paths
from tests.functional.seed.test_cloudinit import NICS

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
    for bits in (512, True, "²", "9" * 5000):
        with pytest.raises(errors.InvalidInput):
            keys.generate(bits)


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
    with pytest.raises(
        errors.InvalidInput, match="install must be image, boot or never, not 'later'"
    ):
        seed.SeedData("web1", "", "", install="later")
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


def test_who_dies_when_the_images_ssh_keys_are_gone_leaves_a_guest_that_makes_new_ones(
    tmp_path, data
):
    class Dies(DirTree):
        def remove(self, path):
            super().remove(path)
            if "ssh_host" in path:
                raise KeyboardInterrupt

    root = system(tmp_path / "root")
    with pytest.raises(KeyboardInterrupt):
        guest.seed(Dies(root), data)
    seed.apply(str(root), None, data)
    expect_seeded(DirTree(root), data)


def test_an_image_without_host_keys_makes_them_at_boot_where_it_has_a_server(tmp_path, data):
    """The cloud images of Debian and Ubuntu leave them to cloud-init, which our seeding is not."""
    root = system(tmp_path / "root")
    (root / "etc/ssh/ssh_host_rsa_key").unlink()
    guest.seed(DirTree(root), data)
    assert not (root / "etc/systemd/system" / firstboot.SSH_UNIT).exists()
    (root / "usr/sbin").mkdir()
    (root / "usr/sbin/sshd").write_text("")
    for again in (data, dataclasses.replace(data, reset_ssh_keys=False)):
        guest.seed(DirTree(root), again)
        wants = root / "etc/systemd/system/multi-user.target.wants" / firstboot.SSH_UNIT
        assert os.readlink(wants) == f"/etc/systemd/system/{firstboot.SSH_UNIT}"
        (root / "etc/systemd/system" / firstboot.SSH_UNIT).unlink()


# openssh-server of Ubuntu 24.04, as it is after its installation
UBUNTU_SSH = {
    "ssh.socket": """\
[Unit]
Description=OpenBSD Secure Shell server socket
Before=sockets.target ssh.service
ConditionPathExists=!/etc/ssh/sshd_not_to_be_run

[Socket]
ListenStream=0.0.0.0:22
ListenStream=[::]:22
BindIPv6Only=ipv6-only
Accept=no
FreeBind=yes

[Install]
WantedBy=sockets.target
RequiredBy=ssh.service
""",
    "ssh.service": """\
[Unit]
Description=OpenBSD Secure Shell server
After=network.target auditd.service
ConditionPathExists=!/etc/ssh/sshd_not_to_be_run

[Service]
ExecStart=/bin/true

[Install]
WantedBy=multi-user.target
Alias=sshd.service
""",
}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
@pytest.mark.parametrize("wanted_by", ["sockets.target.wants", "ssh.service.requires"])
def test_the_unit_for_host_keys_is_in_no_ordering_cycle(tmp_path, data, wanted_by):
    root = system(tmp_path / "root")
    guest.seed(DirTree(root), data)
    units = root / "etc/systemd/system"
    for name, text in UBUNTU_SSH.items():
        (units / name).write_text(text)
    (units / wanted_by).mkdir()
    (units / wanted_by / "ssh.socket").symlink_to("../ssh.socket")
    wants = units / "multi-user.target.wants"
    (wants / "salt-minion.service").unlink()
    (wants / "ssh.service").symlink_to("../ssh.service")
    (wants / firstboot.SSH_UNIT).unlink()
    (wants / firstboot.SSH_UNIT).symlink_to(f"../{firstboot.SSH_UNIT}")
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "multi-user.target"],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:/usr/lib/systemd/system"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "cycle" not in found.stderr, found.stderr
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(units / firstboot.SSH_UNIT)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:/usr/lib/systemd/system"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert firstboot.SSH_UNIT not in found.stderr


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
    with pytest.raises(errors.SeedFailed, match="loop of links"):
        tree.read("/etc/loop")


def test_no_system_and_no_minion_are_told_apart(tmp_path, data):
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.SeedFailed, match="no operating system"):
        seed.apply(str(tmp_path / "empty"), None, data)
    for missing in ("usr/bin/salt-minion", "usr/lib/systemd/system/salt-minion.service"):
        root = system(tmp_path / "root")
        (root / missing).unlink()
        with pytest.raises(errors.SeedFailed, match="no salt-minion"):
            seed.apply(str(root), None, data)
        shutil.rmtree(root)


def test_a_minion_of_uyunis_has_a_folder_of_its_own(tmp_path, data):
    root = system(tmp_path / "root")
    (root / "usr/bin/salt-minion").rename(root / "usr/bin/venv-salt-minion")
    units = root / "usr/lib/systemd/system"
    (units / "salt-minion.service").rename(units / "venv-salt-minion.service")
    seed.apply(str(root), None, data)
    folder = root / "etc/venv-salt-minion"
    assert (folder / "minion_id").read_text() == data.id
    assert (folder / "pki/minion/minion.pem").read_text() == data.private_key
    assert '"pki_dir": "/etc/venv-salt-minion/pki/minion"' in (folder / "minion").read_text()
    assert "venv-salt-minion.service" in os.listdir(root / ENABLED)


def without_minion(tmp_path):
    root = system(tmp_path / "root")
    (root / "usr/bin/salt-minion").unlink()
    return root


def test_where_nothing_can_install_a_minion_nothing_is_written(tmp_path, pair):
    root = without_minion(tmp_path)
    before = sorted(root.rglob("*")), (root / "etc/salt/minion").read_text()
    with pytest.raises(errors.SeedFailed, match="has no salt-minion and there is no bootstrap scr"):
        seed.apply(str(root), None, seed.SeedData("web1", *pair, install="boot"))

    def gone():
        raise FileNotFoundError(2, "No such file or directory", "/srv/bootstrap.sh")

    data = seed.SeedData("web1", *pair, install="boot", bootstrap=gone)
    with pytest.raises(errors.SeedFailed, match=f"^cannot seed {root}: No such file or directory$"):
        seed.apply(str(root), None, data)
    assert (sorted(root.rglob("*")), (root / "etc/salt/minion").read_text()) == before


def test_a_full_file_system_is_seen_before_anything_is_written(tmp_path, data, monkeypatch):
    root = system(tmp_path / "root")
    monkeypatch.setattr(DirTree, "free_space", lambda _self: FreeSpace(False, 1000, None))
    with pytest.raises(errors.SeedFailed, match=r"file system is full: 1000 bytes$"):
        seed.apply(str(root), None, data)
    assert (root / "etc/hostname").read_text() == "image\n"


NSPAWN = """#!/bin/sh
# systemd-nspawn -q --register=no --resolv-conf=bind-host -D ROOT /bin/sh SCRIPT ARGUMENT…
[ "$4" = -D ] && [ "$6" = /bin/sh ] || exit 9
cd "$5" && stat -c %a ".$7" >said && cat ".$7" >>said || exit 8
shift 7 && echo "$@" >>said
"""


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("touch usr/bin/salt-minion", None),
        ("true", "installed no salt-minion; the guest is partially seeded: "),
        ("echo no route >&2; exit 1", "cannot run the bootstrap script inside the image: no ro"),
    ],
)
def test_a_script_installs_the_minion_inside_of_the_image(tmp_path, pair, monkeypatch, does, why):
    """The program here stands for systemd-nspawn; tests/integration has the real one."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "systemd-nspawn"
    program.write_text(NSPAWN + does)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    root = without_minion(tmp_path)
    data = seed.SeedData(
        "web1", *pair, install="image", bootstrap=lambda: "echo hi\n", bootstrap_args="-X git v1"
    )
    (root / "root").mkdir()
    if why:
        with pytest.raises(errors.SeedFailed, match=why):
            seed.apply(str(root), None, data)
    else:
        assert seed.apply(str(root), None, data) == "directory"
    assert (root / "said").read_text() == "700\necho hi\n-X git v1\n"
    assert os.listdir(root / "root") == []
    assert (root / "etc/salt/pki/minion/minion.pem").read_text() == pair[0]


def test_a_host_that_can_run_no_script_says_so_before_anything_is_written(
    tmp_path, pair, monkeypatch
):
    root = without_minion(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    data = seed.SeedData("web1", *pair, install="image", bootstrap=lambda: "#!/bin/sh\n")
    with pytest.raises(errors.Unsupported, match="this host cannot run scripts inside an image"):
        seed.apply(str(root), None, data)
    assert (root / "etc/hostname").read_text() == "image\n"


def test_a_minion_is_installed_at_the_first_boot(tmp_path, pair):
    root = system(tmp_path / "root")
    (root / "usr/bin/salt-minion").unlink()
    data = seed.SeedData(
        "web1", *pair, install="boot", bootstrap=lambda: "#!/bin/sh\n", bootstrap_args="-X stable"
    )
    seed.apply(str(root), None, data)
    unit = root / "etc/systemd/system/salt-virt-bootstrap.service"
    assert "salt-virt-bootstrap.sh -X stable" in unit.read_text()
    assert (root / "etc/salt/salt-virt-bootstrap.sh").read_text() == "#!/bin/sh\n"
    wants = root / "etc/systemd/system/multi-user.target.wants/salt-virt-bootstrap.service"
    assert os.readlink(wants) == "/etc/systemd/system/salt-virt-bootstrap.service"
    assert (root / "etc/salt/pki/minion/minion.pem").exists()


ENABLED = "etc/systemd/system/multi-user.target.wants"
NETWORKD = {f"{ENABLED}/systemd-networkd.service": ""}
RESOLVED = {"usr/lib/systemd/systemd-resolved": ""}
IFUPDOWN = {"sbin/ifup": "", "etc/network/interfaces": "auto eth0\niface eth0 inet dhcp\n"}
NETPLAN = {
    "usr/sbin/netplan": "",
    "usr/lib/systemd/system/systemd-networkd.service": "",
    "etc/netplan/50-cloud-init.yaml": "network: {version: 2}\n",
}
BY_MANAGER = {**NETPLAN, "etc/netplan/01.yaml": "network:\n  renderer: NetworkManager\n"}
MANAGER = {f"{ENABLED}/NetworkManager.service": ""}


def addressed(tmp_path, pair, files, nics=NICS):
    """The root of a system with these files, seeded with fixed addresses."""
    root = system(tmp_path / "root")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    seed.apply(str(root), None, seed.SeedData("web1", *pair, nics=nics))
    return root


@pytest.mark.parametrize("files", [{**NETWORKD, **RESOLVED}, {**NETPLAN, **RESOLVED}])
def test_addresses_by_networkd(tmp_path, pair, files):
    root = addressed(tmp_path, pair, files)
    [name] = os.listdir(root / "etc/systemd/network")
    lines = (root / "etc/systemd/network" / name).read_text().splitlines()
    assert name < "10-netplan-eth0.network"
    assert "MACAddress=52:54:00:00:00:02" in lines
    assert {"Address=192.0.2.7/24", "Address=2001:db8::7/64", "Gateway=192.0.2.1"} <= set(lines)
    assert {"DNS=192.0.2.53", "Domains=example.org", "DHCP=no"} <= set(lines)
    assert "systemd-networkd.service" in os.listdir(root / ENABLED)
    assert (root / "etc/resolv.conf").read_text() == "nameserver 192.0.2.1\n"


@pytest.mark.parametrize("files", [MANAGER, BY_MANAGER])
def test_addresses_by_network_manager(tmp_path, pair, files):
    root = addressed(tmp_path, pair, files)
    [path] = (root / "etc/NetworkManager/system-connections").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    found = configparser.ConfigParser()
    found.read(path)
    assert found["ethernet"]["mac-address"] == "52:54:00:00:00:02"
    assert found["ipv4"]["method"] == found["ipv6"]["method"] == "manual"
    assert (found["ipv4"]["address1"], found["ipv4"]["gateway"]) == ("192.0.2.7/24", "192.0.2.1")
    assert (found["ipv4"]["dns"], found["ipv4"]["dns-search"]) == ("192.0.2.53;", "example.org;")
    assert found["ipv6"]["address1"] == "2001:db8::7/64"
    assert (root / "etc/resolv.conf").read_text() == "nameserver 192.0.2.1\n"


@pytest.mark.parametrize(
    ("address", "methods"),
    [("192.0.2.7/24", ("manual", "auto")), ("2001:db8::7/64", ("disabled", "manual"))],
)
def test_a_family_without_addresses_is_off_or_by_itself(tmp_path, pair, address, methods):
    nics = [{"mac": "52:54:00:00:00:02", "addresses": [address]}]
    root = addressed(tmp_path, pair, MANAGER, nics)
    [path] = (root / "etc/NetworkManager/system-connections").iterdir()
    found = configparser.ConfigParser()
    found.read(path)
    assert (found["ipv4"]["method"], found["ipv6"]["method"]) == methods


def test_addresses_by_ifupdown(tmp_path, pair):
    root = addressed(tmp_path, pair, IFUPDOWN)
    text = (root / "etc/network/interfaces").read_text()
    assert "eth0" not in text
    assert "auto virt0\niface virt0 inet dhcp\n" in text
    assert "iface virt1 inet static\n  address 192.0.2.7/24\n  gateway 192.0.2.1\n" in text
    assert "iface virt1 inet6 static\n  address 2001:db8::7/64\n  gateway 2001:db8::1\n" in text
    links = {path.read_text() for path in (root / "etc/systemd/network").iterdir()}
    assert "[Match]\nMACAddress=52:54:00:00:00:02\n[Link]\nName=virt1\n" in links
    resolv = (root / "etc/resolv.conf").read_text()
    assert resolv == "nameserver 192.0.2.53\nsearch example.org\n"  # nobody else writes it
    if shutil.which("ifquery"):
        argv = ["ifquery", "-i", str(root / "etc/network/interfaces"), "-l"]
        listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        assert listed.split() == ["lo", "virt0", "virt1"]


def test_no_addresses_change_nothing_and_no_manager_is_named(tmp_path, pair):
    root = addressed(tmp_path, pair, IFUPDOWN, NICS[:1])
    assert (root / "etc/network/interfaces").read_text() == IFUPDOWN["etc/network/interfaces"]
    shutil.rmtree(root)
    with pytest.raises(errors.SeedFailed, match="netplan and ifupdown, so its interfaces"):
        addressed(tmp_path, pair, {})


# -- disks --------------------------------------------------------------------------------


def partitioned(tmp_path, content, label="dos"):
    """A qcow2 whose second partition holds a file system; made without mounting anything."""
    raw, path = tmp_path / "d.raw", tmp_path / "d.qcow2"
    size = content.stat().st_size // 512
    with open(raw, "wb") as file:
        file.truncate((size + 4096 + 2048) * 512)
    table = f"label: {label}\nstart=2048, size=2048\nstart=4096, size={size}\n"
    subprocess.run(["sfdisk", "-q", raw], input=table.encode(), check=True)
    dd = ["dd", f"if={content}", f"of={raw}", "bs=1M", "seek=2", "conv=notrunc,sparse"]
    subprocess.run(dd, check=True, capture_output=True)
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, path], check=True)
    return path


def blank(path, mib):
    with open(path, "wb") as file:
        file.truncate(mib * MIB)
    return path


def ext4(tmp_path):
    root = system(tmp_path / "tree")
    part = blank(tmp_path / "part", 100)
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", root, part], check=True)
    return part


def ext4_gpt(tmp_path):
    return partitioned(tmp_path, ext4(tmp_path), "gpt")


def ext4_mbr(tmp_path):
    return partitioned(tmp_path, ext4(tmp_path))


def xfs(tmp_path):
    root = system(tmp_path / "tree")

    def entries(folder):
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                yield f"{path.name} d--755 0 0"
                yield from entries(path)
                yield "$"
            else:
                yield f"{path.name} ---644 0 0 {path}"

    proto = tmp_path / "proto"
    proto.write_text("\n".join(["/dev/null", "0 0", "d--755 0 0", *entries(root), "$", ""]))
    part = blank(tmp_path / "part", 320)
    subprocess.run(["mkfs.xfs", "-q", "-p", proto, part], check=True)
    return partitioned(tmp_path, part)


def btrfs(tmp_path):
    root = system(tmp_path / "tree")
    part = blank(tmp_path / "part", 200)
    subprocess.run(["mkfs.btrfs", "-q", "--rootdir", root, part], check=True)
    return partitioned(tmp_path, part, "gpt")


VOLUME = """
{name} {{
 id = "aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaa{number}"
 status = ["READ", "WRITE", "VISIBLE"]
 segment_count = 1
 segment1 {{
  start_extent = 0
  extent_count = {extents}
  type = "striped"
  stripe_count = 1
  stripes = ["pv0", {start}]
 }}
}}"""


def lvm(tmp_path):
    """A system on a logical volume, made without the kernel's device mapper."""
    part = blank(tmp_path / "part", 160)
    loop = subprocess.run(["losetup", "-f", "--show", part], check=True, capture_output=True)
    device = loop.stdout.decode().strip()
    group, text = f"vg{os.getpid()}", tmp_path / "vg.cfg"

    def run(*argv):
        subprocess.run([*argv, "--devices", device], check=True, capture_output=True)

    try:
        run("pvcreate", "-qq", device)
        run("vgcreate", "-qq", group, device)
        run("vgcfgbackup", "-f", str(text), group)
        head, _, _ = text.read_text().rstrip().rpartition("}")
        swap = VOLUME.format(name="swap", number=1, extents=3, start=0)
        root = VOLUME.format(name="root", number=2, extents=25, start=3)
        text.write_text(f"{head}\nlogical_volumes {{{swap}{root}\n}}\n}}\n")
        run("vgcfgrestore", "-f", str(text), group)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
    # the first volume begins at 1 MiB, in extents of 4 MiB
    dd = ["dd", f"if={ext4(tmp_path / 'inner')}", f"of={part}", "bs=1M", "seek=13"]
    subprocess.run([*dd, "conv=notrunc"], check=True, capture_output=True)
    return partitioned(tmp_path, part)


@pytest.fixture(params=[ext4_mbr, ext4_gpt, xfs, btrfs, lvm], ids=lambda make: make.__name__)
def disk(request, tmp_path):
    need = {"xfs": "mkfs.xfs", "btrfs": "mkfs.btrfs", "lvm": "pvcreate"}
    tool = need.get(request.param.__name__, "sfdisk")
    if not shutil.which(tool) or (request.param is lvm and os.geteuid()):
        pytest.skip(f"no {tool} here")
    (tmp_path / "inner").mkdir()
    return request.param(tmp_path)


@pytest.fixture(
    params=["fuse", pytest.param("libguestfs", marks=[needs_guestfish, pytest.mark.slow])]
)
def backend(request):
    if request.param == "fuse" and (os.geteuid() or not backends.mounted.available("fuse")):
        pytest.skip("mounting needs root and /dev/fuse")
    return request.param


def left_behind(disk):
    """What still holds the disk, and what lies in the folder for seeding: processes, loop
    devices, folders."""
    loops = subprocess.run(["losetup", "-l", "-n"], capture_output=True, text=True, check=True)
    found = [line for line in loops.stdout.splitlines() if paths.RUN in line]
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(disk).encode() in (folder / "cmdline").read_bytes():
                found.append((folder / "cmdline").read_bytes())
    return found + [str(one) for one in pathlib.Path(paths.RUN).glob("*-*")]


def test_a_disk_is_seeded_and_clean_afterwards(tmp_path, disk, data, backend, monkeypatch):
    """Twice in a row; and what is there then is shown by the other back end. In a folder of its
    own: other tests seed at the same time."""
    monkeypatch.setattr(paths, "RUN", str(tmp_path / "run"))
    for _ in range(2):
        assert seed.apply(str(disk), "qcow2", data, backend) == backend
    with backends._shown(str(disk), "qcow2", "fuse", False) as tree:
        expect_seeded(tree, data)
    assert left_behind(disk) == []


@pytest.mark.parametrize("backend", ["fuse", pytest.param("libguestfs", marks=needs_guestfish)])
def test_the_file_system_is_whole_afterwards(tmp_path, data, backend):
    if backend == "fuse" and (os.geteuid() or not backends.mounted.available("fuse")):
        pytest.skip("mounting needs root and /dev/fuse")
    disk = ext4_mbr(tmp_path)
    seed.apply(str(disk), "qcow2", data, backend)
    raw = tmp_path / "after.raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", disk, raw], check=True)
    fsck = ["e2fsck", "-fn", f"{raw}?offset={2 * MIB}"]
    assert subprocess.run(fsck, check=False, capture_output=True).returncode == 0


def test_several_at_once(tmp_path, data, monkeypatch):
    """And each takes away its own folder, whatever the others do."""
    monkeypatch.setattr(paths, "RUN", str(tmp_path / "run"))
    if os.geteuid() or not backends.mounted.available("fuse"):
        pytest.skip("mounting needs root and /dev/fuse")
    first = ext4_mbr(tmp_path)
    disks = [str(shutil.copy(first, tmp_path / f"{n}.qcow2")) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda path: seed.apply(path, "qcow2", data, "fuse"), disks))
    assert done == ["fuse"] * 6
    assert left_behind(tmp_path) == []
    for path in disks:
        with backends._shown(path, "qcow2", "fuse", False) as tree:
            expect_seeded(tree, data)


def test_a_disk_in_use_is_refused(tmp_path, data, backend):
    disk = ext4_mbr(tmp_path)
    with subprocess.Popen(
        ["qemu-io", "-f", "qcow2", disk], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        user.stdout.read(1)
        with pytest.raises(errors.VirtError, match="lock"):
            seed.apply(str(disk), "qcow2", data, backend)
        user.stdin.close()


def test_a_disk_without_a_system_is_refused_and_let_go(tmp_path, pair, backend):
    disk = tmp_path / "blank.raw"
    with open(disk, "wb") as file:
        file.truncate(20 * MIB)
    with pytest.raises(errors.SeedFailed, match=str(disk)):
        seed.apply(str(disk), "raw", seed.SeedData("web1", *pair), backend)
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
    from saltvirt.seed.minion import SeedRequest

    yaml = pytest.importorskip("yaml")
    root = system(tmp_path / "root")
    public = hypervisor.apply("web1", str(root), None, SeedRequest(grains={"role": "web"}))
    assert (root / "etc/salt/pki/minion/minion.pub").read_text() == public
    assert (root / "etc/salt/pki/minion/minion_master.pub").read_text() == "MASTER\n"
    config = yaml.safe_load((root / "etc/salt/minion").read_text())
    assert config["master"] == "10.0.0.1"
    assert config["log_level"] == "info"
    assert (root / "etc/hostname").read_text() == "web1\n"


def test_another_master_is_not_trusted_by_our_masters_key(tmp_path, hypervisor):
    from saltvirt.seed.minion import SeedRequest

    data = hypervisor.data("web1", SeedRequest(config={"master": "other"}))
    assert data.master_public_key is None
    assert hypervisor.bootstrap() == "#!/bin/sh\n"
    with pytest.raises(errors.InvalidInput, match="both"):
        hypervisor.data("web1", SeedRequest(pub_key="x"))


@pytest.fixture
def adapter(tmp_path, monkeypatch, hypervisor):
    """The execution module ``seed``, on the hypervisor whose minion trusts MASTER; and the keys
    that it handed to its master."""
    # before the adapter imports it lazily: monkeypatch removes what it sets in a lazy module
    from saltvirt.fleet.minion import client
    from tests.functional.conftest import load

    modules = load("test:///default", lock=str(tmp_path / "lock"))
    globals_of = modules["seed.mkconfig"].__globals__
    handed = []
    monkeypatch.setitem(globals_of, "_hypervisor", lambda: hypervisor)
    monkeypatch.setattr(
        client, "submit_key", lambda _functions, name, key: handed.append((name, key))
    )
    return modules, handed


def test_a_folder_is_seeded_by_the_module_and_its_key_handed_in(tmp_path, adapter):
    modules, handed = adapter
    root = system(tmp_path / "root")
    assert modules["seed.apply"](str(root), "web1", grains={"role": "web"}) is True
    public = (root / "etc/salt/pki/minion/minion.pub").read_text()
    assert handed == [("web1", public)]
    assert (root / "etc/hostname").read_text() == "web1\n"
    assert modules["seed.apply"](str(root), config={"id": "web2"}, approve_key=False) is True
    assert (root / "etc/hostname").read_text() == "web2\n"
    assert len(handed) == 1


def test_an_argument_that_seeds_nothing_is_named(tmp_path, adapter):
    modules, handed = adapter
    root = system(tmp_path / "root")
    with pytest.raises(errors.VirtError, match="unknown argument among: grians, startup_states"):
        modules["seed.apply"](str(root), "web1", grians={}, startup_states="top")
    assert (root / "etc/hostname").read_text() == "image\n"
    assert handed == []


def test_a_minions_files_are_made_in_a_folder_for_this_user_alone(tmp_path, adapter):
    yaml = pytest.importorskip("yaml")
    modules, handed = adapter
    found = modules["seed.mkconfig"]({"log_level": "debug"}, str(tmp_path), "web1")
    modes = {what: os.stat(path).st_mode & 0o777 for what, path in found.items()}
    assert modes == {"config": 0o640, "pubkey": 0o600, "privkey": 0o400}
    texts = {what: pathlib.Path(path).read_text() for what, path in found.items()}
    config = yaml.safe_load(texts["config"])
    assert (config["id"], config["master"], config["log_level"]) == ("web1", "10.0.0.1", "debug")
    assert handed == [("web1", texts["pubkey"])]
    assert keys.pair(texts["privkey"], texts["pubkey"])
    given = modules["seed.mkconfig"](
        None, str(tmp_path), "web2", pub_key=texts["pubkey"], priv_key=texts["privkey"]
    )
    assert pathlib.Path(given["privkey"]).read_text() == texts["privkey"]
    assert len(handed) == 1, "a key that was given is known to who gave it"


def test_for_a_wrong_name_no_folder_is_made(tmp_path, monkeypatch, adapter):
    modules, handed = adapter
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = sorted(os.listdir(tmp_path))
    for wrong in ({"id_": "a/b"}, {}, {"id_": "web1", "config": 7}):
        with pytest.raises(errors.VirtError):
            modules["seed.mkconfig"](**wrong)
    assert (sorted(os.listdir(tmp_path)), handed) == (before, [])
    made = modules["seed.mkconfig"](id_="web1")
    folder = os.path.dirname(made["config"])
    assert os.path.dirname(folder) == str(tmp_path)
    assert os.stat(folder).st_mode & 0o777 == 0o700


def test_a_pair_that_is_given_as_text_or_as_files(tmp_path, hypervisor, pair):
    from saltvirt.seed.minion import SeedRequest

    paths = [tmp_path / "minion.pem", tmp_path / "minion.pub"]
    for path, text in zip(paths, pair, strict=True):
        path.write_text(text)
    for private, public in (pair, map(str, paths)):
        data = hypervisor.data("web1", SeedRequest(priv_key=private, pub_key=public))
        assert (data.private_key, data.public_key) == pair
    paths[0].unlink()
    with pytest.raises(errors.InvalidInput, match=f"^priv_key: cannot read {paths[0]}: No such"):
        hypervisor.data("web1", SeedRequest(priv_key=str(paths[0]), pub_key=str(paths[1])))


def test_how_a_minion_comes_into_the_guest(hypervisor):
    from saltvirt.seed.minion import SeedRequest

    def install(**given):
        return hypervisor.data("web1", SeedRequest(**given)).install

    assert install() == "image"
    assert install(install=False) == "never"
    assert install(install=False, prep_install=True) == "boot"


def test_a_script_that_cannot_be_fetched_is_one_line(hypervisor):
    def offline():
        raise OSError("no route to host")

    hypervisor._call["config.gather_bootstrap_script"] = offline
    with pytest.raises(errors.SeedFailed, match=r"cannot fetch Salt's bootstrap script: no route"):
        hypervisor.bootstrap()
