"""How far the creation of a guest has come."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """CREATING: a process creates the guest. INTERRUPTED: that process ended before the guest was
    complete: its disks may be missing, empty or not seeded. COMPLETE: any other guest."""

    CREATING = "creating"
    INTERRUPTED = "interrupted"
    COMPLETE = "complete"
