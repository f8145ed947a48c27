"""A difference between a desired and an actual definition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Change:
    """A change: its subject, the old and new value, and how it can be applied.

    subject: the group, for example cpu, mem, disks, nics, graphics. path: the exact setting, for
    example ``memory_kib`` or ``disks:vdb``. old, new: plain values; ``None`` if absent. action:
    set, attach, detach, update (a device in place), medium (of a CD drive), limit (of a disk),
    resize. live: whether libvirt can do it on a running guest. xml: the device's XML text for
    attach, detach, update, medium and limit.
    """

    subject: str
    path: str
    old: Any = None
    new: Any = None
    action: str = "set"
    live: bool = False
    # not in the repr: the XML of a display contains its password
    xml: str = field(default="", repr=False)

    def show(self) -> dict[str, Any]:
        """``{"path", "old", "new", "live"}`` for the user."""
        return {"path": self.path, "old": self.old, "new": self.new, "live": self.live}
