"""The single list of Debian packages that the lab, the tests and the tools need on their machine:
``make test``, ``make test-unit``, ``make lint``, ``make demo`` and ``make bench`` install what they
need from it, in any order."""

import os
from pathlib import Path

from tests.lab.sh import LabError, run

# what the tests' Python is built with; libvirt-python comes as source
PYTHON = (
    "ca-certificates",
    "gcc",
    "libc6-dev",
    "libvirt-dev",
    "pkg-config",
    "python3-dev",
    "python3-venv",
)
# what builds and runs the lab
LAB = (
    "extlinux",
    "fdisk",
    "git",
    "iproute2",
    "mmdebstrap",
    "mount",
    "openssl",
    "parted",
    "procps",
    "qemu-system-x86",
    "qemu-utils",
    "syslinux-common",
    "systemd-container",
    "util-linux",
)
# what the functional tests call: libvirt's QEMU driver, the tools of a hypervisor, and
# a browser for the page
TESTS = (
    "btrfs-progs",
    "chromium",
    "chromium-driver",
    "dosfstools",
    "e2fsprogs",
    "fuse3",
    "gnutls-bin",
    "guestfs-tools",
    "iptables",
    "libguestfs-tools",
    "libvirt-clients",
    "libvirt-daemon-driver-qemu",
    "libvirt-daemon-system",
    "libxml2-utils",
    "lvm2",
    "nftables",
    "nginx-light",
    "novnc",
    "openssh-client",
    "ovmf",
    "python3-libnbd",
    "qemu-block-extra",
    "qemu-guest-agent",
    "restic",
    "swtpm",
    "swtpm-tools",
    "xfsprogs",
    "xorriso",
)
# what a lab with BMCs and watchdogs runs, and asks them with
POWER = ("fence-agents", "fuse3", "python3-fusepy")
# libguestfs boots this kernel where the machine has none of its own: in a container
KERNEL = "linux-image-cloud-amd64"
ALL = (*PYTHON, *LAB, *TESTS)


def why_not():
    """Why no lab can run here, in one sentence, or None when it can."""
    if os.geteuid() != 0:
        return "the lab needs root (it makes containers and network namespaces)"
    release = Path("/etc/os-release")
    known = (
        dict(line.split("=", 1) for line in release.read_text().splitlines() if "=" in line)
        if release.exists()
        else {}
    )
    if known.get("ID") != "debian" or known.get("VERSION_ID", "").strip('"') != "12":
        return "the lab runs on Debian 12 only"
    return None


def missing(wanted):
    """Those of the wanted packages that are not installed."""
    asked = run(["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *wanted], check=False)
    there = {line.split()[0] for line in asked.stdout.splitlines() if line.endswith(" installed")}
    names = [name for name in wanted if name not in there]
    if any(name in TESTS for name in wanted) and not any(Path("/boot").glob("vmlinu[xz]-*")):
        names.append(KERNEL)
    return names


def ensure(say=lambda text: None, wanted=ALL):
    """Install what is missing; one apt-get update, and only if there is something."""
    reason = why_not()
    if reason:
        raise LabError(reason)
    names = missing(wanted)
    if not names:
        return
    say(f"installing {' '.join(names)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *names]
    if run(install, check=False, env=env).returncode:
        run(["apt-get", "update", "-qq"], env=env)
        run(install, env=env)
