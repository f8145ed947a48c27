"""Detection of a hypervisor and its type from files alone.

This runs when a minion starts and must not block: it contacts no daemon, starts no process and does
not need the libvirt binding. With socket activation no daemon may be running on a hypervisor.
"""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Any

# the monolithic daemon, or one per hypervisor type, with its socket in /run/libvirt
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
    """Return the detected facts; see the grain ``virt_host``.

    machine: the host's architecture as in ``os.uname().machine``.
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
    """Return the sorted libvirt daemons that run or wait for socket activation.

    The socket of a dead daemon remains, so the daemon must also be installed.
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
    """Return kvm, xen, bhyve, qemu or lxc; None if the machine cannot run guests."""
    serves = set(daemons) & {"libvirtd", "virtproxyd"}
    if _is_dom0(root) and (serves or "virtxend" in daemons):
        return "xen"
    if _has_qemu(root, machine) and (serves or "virtqemud" in daemons):
        return "kvm" if _exists(root / "dev/kvm") else "qemu"
    if _exists(root / "dev/vmm") and (serves or "virtbhyved" in daemons):
        return "bhyve"
    return "lxc" if "virtlxcd" in daemons else None


def _exists(path: Path) -> bool:
    """Return whether a path exists. Paths that an unprivileged minion cannot access do not."""
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
    # the location on Enterprise Linux
    return any(_exists(root / path) for path in ("usr/libexec/qemu-kvm", "usr/bin/qemu-kvm"))
