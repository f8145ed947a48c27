"""The root of a machine that is no hypervisor yet: Debian without libvirt.

It has an apt repository of its own at /srv/apt, for a lab has no route out: what the
formula installs, what builds the binding, and other ways to run a network or a firewall.
"""

import hashlib
import shutil
from pathlib import Path

from tests.lab.build.debian import bootstrap
from tests.lab.build.host_os import (
    LOOP_DEVICES,
    MANAGER_CONF,
    MINION_UNIT,
    NOT_IN_A_LAB,
    MORE_13,
)
from tests.lab.sh import run

PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,iproute2,procps,kmod,openssl,python3,python3-venv,"
    "ca-certificates,iputils-ping,netcat-openbsd,nftables,linux-image-cloud-amd64"
)
HYPERVISOR = (
    "libvirt-daemon-system,libvirt-clients,qemu-utils,qemu-block-extra,dnsmasq-base,swtpm,"
    "swtpm-tools,lvm2,parted,guestfs-tools,libguestfs-tools,xorriso,qemu-system-x86,ovmf"
)
BINDING = "libvirt-dev,pkg-config,gcc,libc6-dev,python3-dev"
NETWORK = "netplan.io,network-manager,ifupdown,openvswitch-switch,ufw,firewalld,iptables"
SOURCE = "deb [trusted=yes] file:/srv/apt ./\n"


def build(root, recipe):
    """Fill the folder `root` with Debian, and its repository."""
    wanted = f"{HYPERVISOR},{BINDING},{NETWORK}"
    sources, packages = (), PACKAGES
    if recipe.debian == "13":
        sources = ("bookworm",)
        packages += ",python3.11"
        wanted += MORE_13
    bootstrap(root, recipe.suite, packages, sources)
    units = root / "etc/systemd/system"
    (units / "salt-minion.service").write_text(MINION_UNIT)
    for name in NOT_IN_A_LAB:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    (units.parent / "system.conf.d").mkdir(exist_ok=True)
    (units.parent / "system.conf.d/lab.conf").write_text(MANAGER_CONF)
    (root / "etc/tmpfiles.d/lab-loop.conf").write_text(
        "".join(f"b! /dev/loop{n} 0660 root disk - 7:{n}\n" for n in range(LOOP_DEVICES))
    )
    repository(root, wanted.split(","))
    (root / "etc/machine-id").unlink(missing_ok=True)


def repository(root, packages):
    """Make /srv/apt of what installing `packages` takes, and have apt know nothing else."""
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    folder = root / "srv/apt"
    folder.mkdir()
    fetch = ["chroot", root, "apt-get", "-q", "-y", "--no-install-recommends", "--download-only"]
    run(["chroot", root, "apt-get", "-q", "update"])
    for several in (packages[:-1], packages[-1:]):
        run([*fetch, "install", *several])
    archives = root / "var/cache/apt/archives"
    for package in archives.glob("*.deb"):
        shutil.move(package, folder / package.name)
    index = "\n".join(entry(package) for package in sorted(folder.glob("*.deb")))
    (folder / "Packages").write_text(index, encoding="utf-8")
    shutil.rmtree(root / "var/lib/apt/lists")
    for source in (root / "etc/apt").glob("sources.list*"):
        if source.is_dir():
            shutil.rmtree(source)
        else:
            source.unlink()
    (root / "etc/apt/sources.list").write_text(SOURCE)
    run(["chroot", root, "apt-get", "-q", "update"])
    (root / "etc/resolv.conf").unlink()


def entry(package):
    """The paragraph of a package in a repository's index."""
    control = run(["dpkg-deb", "-f", package]).stdout.strip()
    data = Path(package).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return f"{control}\nFilename: ./{package.name}\nSize: {len(data)}\nSHA256: {digest}\n"
