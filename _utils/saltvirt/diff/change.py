"""One difference between what is wanted and what is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Change:
    """What changes, from what to what, and how it can be applied.

    what: the group of things, e.g. cpu, mem, disks, nics, graphics.
    path: which one exactly, e.g. ``memory_kib`` or ``disks:vdb``.
    old, new: as plain values; ``None`` for nothing.
    action: set, attach, detach, update (a device in place), medium (of a CD drive), resize.
    live: whether libvirt can do it on a running guest.
    xml: the device's XML text for attach, detach, update and medium.
    """

    subject: str
    path: str
    old: Any = None
    new: Any = None
    action: str = "set"
    live: bool = False
    # in no repr: a display's XML holds its password
    xml: str = field(default="", repr=False)

    def show(self) -> dict[str, Any]:
        """``{"path", "old", "new", "live"}`` for people."""
        return {"path": self.path, "old": self.old, "new": self.new, "live": self.live}
