"""Is this machine a hypervisor, and of what kind: from files alone.

Nothing here asks a daemon, starts a process or needs the binding: it runs when a
minion starts and must not hang. Where libvirt waits on a socket for its first client,
no daemon runs, and it is a hypervisor all the same.
"""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Any

# one daemon for all, or one for each kind of hypervisor; sockets in /run/libvirt
_SOCKETS = {
    "libvirtd": "libvirt-sock",
    "virtqemud": "virtqemud-sock",
    "virtxend": "virtxend-sock",
    "virtlxcd": "virtlxcd-sock",
    "virtbhyved": "virtbhyved-sock",
    "virtproxyd": "virtproxyd-sock",
}
_BINARIES = ("usr/sbin", "usr/local/sbin", "usr/bin", "usr/local/bin")
_EMULATORS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def detect(machine: str, root: str | Path = "/") -> dict[str, Any]:
    """What was found, as plain data: see the grain ``virt_host``.

    machine: the host's architecture as ``os.uname().machine`` names it.
    """
    root = Path(root)
    daemons = _daemons(root)
    kind = _kind(root, machine, daemons)
    return {
        "hypervisor": kind is not None,
        "type": kind,
        "daemons": daemons,
        "kvm": _exists(root / "dev/kvm"),
        "arch": machine,
    }


def _daemons(root: Path) -> list[str]:
    """libvirt's daemons that run or wait on their socket, sorted.

    A socket's file stays when a daemon dies, so a daemon must be installed as well.
    """
    return sorted(
        daemon
        for daemon, socket in _SOCKETS.items()
        if _installed(root, daemon)
        and any(_exists(root / run / "libvirt" / socket) for run in ("run", "var/run"))
    )


def _installed(root: Path, program: str) -> bool:
    return any(_exists(root / folder / program) for folder in _BINARIES)


def _kind(root: Path, machine: str, daemons: list[str]) -> str | None:
    """kvm, xen, bhyve, qemu, lxc, or None when nothing here could run a guest."""
    serves = set(daemons) & {"libvirtd", "virtproxyd"}
    if _is_dom0(root) and (serves or "virtxend" in daemons):
        return "xen"
    if _has_qemu(root, machine) and (serves or "virtqemud" in daemons):
        return "kvm" if _exists(root / "dev/kvm") else "qemu"
    if _exists(root / "dev/vmm") and (serves or "virtbhyved" in daemons):
        return "bhyve"
    return "lxc" if "virtlxcd" in daemons else None


def _exists(path: Path) -> bool:
    """What a minion that is not root may not look at is not there for it."""
    return os.path.exists(path)


def _is_dom0(root: Path) -> bool:
    try:
        return b"control_d" in (root / "proc/xen/capabilities").read_bytes()
    except OSError:
        return False


def _has_qemu(root: Path, machine: str) -> bool:
    emulator = f"qemu-system-{_EMULATORS.get(machine, machine)}"
    if _installed(root, emulator):
        return True
    # Enterprise Linux and its kin hide it there
    return any(_exists(root / path) for path in ("usr/libexec/qemu-kvm", "usr/bin/qemu-kvm"))
