"""Time limits and maximums of high availability: ``virt:ha``."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from saltvirt.schema import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

FREEZE, FAILOVER, MIGRATE, CONDITIONAL = "freeze", "failover", "migrate", "conditional"
SHUTDOWN_POLICIES = (FREEZE, FAILOVER, MIGRATE, CONDITIONAL)

# settings on which no proof depends
_NO_PROOF = (
    "max_fences", "fence_window_s", "fence_retry_s", "starts_at_once", "storage_lost_s", "stable_s",
    "shutdown_policy", "shutdown_wait_s", "reserve",
)  # fmt: skip


@dataclass(frozen=True)
class Terms(Message):
    """What the proofs about a host depend on, as the host itself announces it; each time is from
    ``HaPolicy``. times: the digest of all times on which a proof depends; program: the digest of
    the program. Terms() belongs to an agent of an older version, which announces no terms."""

    feed_lease_s: float = 0
    lead_lease_s: float = 0
    clock_drift: float = 0
    times: str = ""
    program: str = ""

    def differs(self, reference: Terms) -> str:
        """Return how the terms of two machines differ, or ""."""
        if not self.times or not reference.times:
            return "an older version, which does not announce its timeouts"
        differences = ["other timeouts"] if self.times != reference.times else []
        differences += ["another program"] if self.program != reference.program else []
        return " and ".join(differences)


def settings_digest(
    policy: HaPolicy, members: Iterable[str], masters: Iterable[str], pools: Iterable[str]
) -> str:
    """Return the digest of all settings that machines must have in common, as agents and masters
    announce it."""
    times = {
        key: value if isinstance(value, str) else float(value)
        for key, value in asdict(policy).items()
    }
    content = [times, sorted(members), sorted(masters), sorted(pools)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class HaPolicy:
    """The policy, which is the same on all machines: a proof of one machine depends on the times
    that the others keep.

    beat_s: the interval in which hosts and masters send what they know. suspect_s: a host that is
    silent for this time may have failed. feed_lease_s: the time, from when the host sent the last
    acknowledged heartbeat, during which it may feed its watchdog. watchdog_s: the time without
    feeding after which the watchdog cuts the power. lead_lease_s: the time, from when an agent was
    asked for the lead, during which it grants the lead to no other master. clock_drift: the most by
    which two clocks differ in one second, in seconds. margin_s: a margin that is added to each wait
    that proves something.

    max_fences: the maximum number of hosts that may be fenced in fence_window_s. fence_retry_s: the
    time between two attempts. starts_at_once: the maximum number of guests that start on a host at
    the same time. storage_lost_s: the time without its storage after which a host's guests are
    taken to other hosts that have the storage. stable_s: a guest that ran for this time has all its
    attempts again. shutdown_policy: what happens to the guests of a host that shuts down cleanly;
    shutdown_wait_s: the most time that the host waits for it. reserve: the number of lost hosts for
    which capacity is reserved.
    """

    beat_s: float = 1
    suspect_s: float = 6
    feed_lease_s: float = 8
    watchdog_s: float = 10
    lead_lease_s: float = 6
    clock_drift: float = 0.01
    margin_s: float = 3
    max_fences: int = 2
    fence_window_s: float = 600
    fence_retry_s: float = 30
    starts_at_once: int = 4
    storage_lost_s: float = 20
    stable_s: float = 120
    shutdown_policy: str = CONDITIONAL
    shutdown_wait_s: float = 120
    reserve: int = 0

    @property
    def drift(self) -> float:
        """Return the factor by which a duration on a fast clock can exceed the same duration on a
        slow one. If a machine announces a clock that may stand still, no wait for it is long
        enough."""
        if self.clock_drift >= 1:
            return math.inf
        return (1 + self.clock_drift) / (1 - self.clock_drift)

    def terms(self, program: str) -> Terms:
        """Return the terms that a machine with this policy and that program announces."""
        times = _times_digest(self)
        return Terms(self.feed_lease_s, self.lead_lease_s, self.clock_drift, times, program)

    def must_have_fired_s(self, watchdog_s: float, terms: Terms = Terms()) -> float:
        """Return the time after which the watchdog has fired, from the last heartbeat that can have
        been acknowledged. watchdog_s, terms: as the host announced them; for each time, the longer
        of the host's and the policy's one counts.

        The watchdog's time counts twice: the process that feeds the watchdog may be stopped between
        the check of its lease and the feeding, for almost the watchdog's whole time.
        """
        feed_lease_s = max(self.feed_lease_s, terms.feed_lease_s)
        watchdog_s = max(self.watchdog_s, watchdog_s)
        drift = max(self.drift, replace(self, clock_drift=terms.clock_drift).drift)
        return (feed_lease_s + 2 * watchdog_s) * drift + self.margin_s

    def lead_by(self, terms: Iterable[Terms]) -> HaPolicy:
        """Return the policy with which a master may lead that was granted the lead on those terms:
        for each time, the value with which the lead ends sooner."""
        announcements = [announcement for announcement in terms if announcement.times]
        return replace(
            self,
            lead_lease_s=min(
                [self.lead_lease_s, *(announcement.lead_lease_s for announcement in announcements)]
            ),
            clock_drift=max(
                [self.clock_drift, *(announcement.clock_drift for announcement in announcements)]
            ),
        )

    @property
    def lead_s(self) -> float:
        """Return the time for which a master may lead, from when it asked for the lead: less than
        the time for which agents reserve the lead for this master."""
        return self.lead_lease_s / self.drift - self.beat_s / 2

    def on_shutdown(self, reboot: bool) -> str:
        """Return freeze, failover or migrate for a host that shuts down or reboots."""
        if self.shutdown_policy == CONDITIONAL:
            return FREEZE if reboot else FAILOVER
        return self.shutdown_policy


@functools.lru_cache(maxsize=64)
def _times_digest(policy: HaPolicy) -> str:
    """Return the digest of all times of a policy on which a proof depends. Each heartbeat announces
    it."""
    times = {key: float(value) for key, value in asdict(policy).items() if key not in _NO_PROOF}
    return hashlib.sha256(json.dumps(times, sort_keys=True).encode()).hexdigest()
