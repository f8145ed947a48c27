"""The phase of a guest's creation."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """CREATING: a process creates the guest. INTERRUPTED: that process ended before the guest was
    complete, so its disks may be missing, empty or not seeded. COMPLETE: any other guest."""

    CREATING = "creating"
    INTERRUPTED = "interrupted"
    COMPLETE = "complete"
