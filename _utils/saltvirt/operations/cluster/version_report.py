"""Report the versions on all hosts, and the hosts that lag behind the master."""

from __future__ import annotations

from typing import Any

from saltvirt.answers.guest_calls import HostRequest
from saltvirt.answers.host_calls import VERSIONS
from saltvirt.answers.versions import Versions
from saltvirt.fleet.client import Fleet

_HEAD = ["host", "Salt Virt", "by", "digest", "Salt", "Python", "libvirt", "to do"]
MASTER = "master"
COLUMNS = {
    "Python": {"drop": 0}, "by": {"drop": 1}, "digest": {"drop": 2}, "to do": {"below": True},
}  # fmt: skip
_CURE = {
    "sync": "salt {} saltutil.sync_all",
    "pip": "install the master's version there, and restart the minion",
}


def versions(fleet: Fleet, master_versions: Versions, host: str | None = None) -> dict[str, Any]:
    """Return the versions of the master, and of one hypervisor or all of them.

    Returns a dict: ``master``; ``hosts``, host to its versions or to ``error``; ``lagging``, host
    to how to update it.
    """
    versions_by_host, unreachable = VERSIONS.gather(fleet, fleet.hosts(host), HostRequest())
    lagging = {
        name: f"another version than the master's: {_cure(name, host_versions)}"
        for name, host_versions in versions_by_host.items()
        if host_versions.digest != master_versions.digest
    }
    hosts = {name: host_versions.to_answer() for name, host_versions in versions_by_host.items()}
    hosts |= {name: {"error": reason} for name, reason in unreachable.items()}
    return {
        "master": master_versions.to_answer(),
        "hosts": dict(sorted(hosts.items())),
        "lagging": lagging,
    }


def _cure(host: str, host_versions: Versions) -> str:
    return _CURE.get(host_versions.install_method, "").format(host)


def table(report: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of ``virt.versions`` on a terminal, with the header."""
    rows = [_HEAD, _row(MASTER, report["master"], "")]
    for host, host_report in report["hosts"].items():
        rows.append(
            _row(host, host_report, host_report.get("error") or report["lagging"].get(host, ""))
        )
    return rows


def _row(name: str, host_report: dict[str, Any], note: str) -> list[Any]:
    keys = ("salt_virt", "install_method", "digest", "salt", "python", "libvirt")
    values = (host_report.get(key) or "" for key in keys)
    return [name, *values, f"{name}: {note}" if note else ""]
