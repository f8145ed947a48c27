"""What runs where, and which hosts lag behind the master."""

from __future__ import annotations

from typing import Any

from saltvirt.answers.versions import Versions
from saltvirt.fleet import answer
from saltvirt.fleet.client import Fleet

_HEAD = ["host", "Salt Virt", "by", "digest", "Salt", "Python", "libvirt", ""]
MASTER = "master"
_CURE = {
    "sync": "salt {} saltutil.sync_all",
    "pip": "install the master's version there, and restart the minion",
}


def versions(fleet: Fleet, own: Versions, host: str | None = None) -> dict[str, Any]:
    """Of the master's ``own``, and of each hypervisor or of one.

    Returns a dict: ``master``; ``hosts``, host to the same or to ``error``; ``lagging``, host to
    what to do about it.
    """
    asked = fleet.gather(fleet.hosts(host), "virt.versions")
    found, unreachable = answer.facts(asked.values(), Versions.from_answer)
    lagging = {
        name: f"another version than the master's: {_CURE.get(one.way, '').format(name)}"
        for name, one in found.items() if one.digest != own.digest
    }  # fmt: skip
    hosts = {name: one.to_answer() for name, one in found.items()}
    hosts |= {name: {"error": why} for name, why in unreachable.items()}
    return {"master": own.to_answer(), "hosts": dict(sorted(hosts.items())), "lagging": lagging}


def table(found: dict[str, Any]) -> list[list[Any]]:
    """The rows of ``virt.versions`` on a terminal, the head first."""
    rows = [_HEAD, _row(MASTER, found["master"], "")]
    for host, about in found["hosts"].items():
        rows.append(_row(host, about, about.get("error") or found["lagging"].get(host, "")))
    return rows


def _row(name: str, about: dict[str, Any], note: str) -> list[Any]:
    keys = ("salt_virt", "way", "digest", "salt", "python", "libvirt")
    return [name, *(about.get(key) or "" for key in keys), note]
