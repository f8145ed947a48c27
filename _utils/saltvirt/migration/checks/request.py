"""The request of a migration, for its checks."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.answers.migration import Certificate
from saltvirt.migration.options import Options
from saltvirt.migration.storage import DiskPlan
from saltvirt.migration.transport import Transport
from saltvirt.placement.policy import PlacementPolicy


@dataclass(frozen=True)
class CheckedMigration:
    """placement: how full a host may become; ratios, limits: the target's own configuration
    (``virt:ratios``, ``virt:placement``); certificates: see checks.trust; overcommit: do not check
    the capacity; unmounted: the target's mount points on which nothing is mounted."""

    options: Options
    transport: Transport
    plans: list[DiskPlan] = field(default_factory=list)
    placement: PlacementPolicy = field(default_factory=PlacementPolicy)
    ratios: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    certificates: dict[str, dict[str, Certificate]] = field(default_factory=dict)
    overcommit: bool = False
    unmounted: tuple[str, ...] = ()
