"""The Debian packages that the lab needs on the machine it runs on."""

import os
from pathlib import Path

from tests.lab.sh import LabError, run

NEEDED = (
    "ca-certificates",
    "extlinux",
    "gcc",
    "git",
    "iproute2",
    "libc6-dev",
    "libvirt-dev",
    "mmdebstrap",
    "openssl",
    "parted",
    "pkg-config",
    "python3-dev",
    "python3-venv",
    "qemu-system-x86",
    "qemu-utils",
    "syslinux-common",
    "systemd-container",
)


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


def missing():
    """The needed packages that are not installed."""
    asked = run(["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *NEEDED], check=False)
    there = {line.split()[0] for line in asked.stdout.splitlines() if line.endswith(" installed")}
    return [name for name in NEEDED if name not in there]


def ensure(say=lambda text: None):
    """Install what is missing; one apt-get update, and only if there is something."""
    reason = why_not()
    if reason:
        raise LabError(reason)
    names = missing()
    if not names:
        return
    say(f"installing {' '.join(names)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *names]
    if run(install, check=False, env=env).returncode:
        run(["apt-get", "update", "-qq"], env=env)
        run(install, env=env)
