"""How patient high availability is, and how much it may do: ``virt:ha``."""

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

# what is not a time on which a proof rests
_NO_PROOF = (
    "max_fences", "fence_window_s", "fence_retry_s", "starts_at_once", "storage_lost_s", "stable_s",
    "shutdown_policy", "shutdown_wait_s", "reserve",
)  # fmt: skip


@dataclass(frozen=True)
class Terms(Message):
    """What the proofs of a host depend on, as the host itself announces it: each time is of
    ``HaPolicy``. times: the digest of all times on which a proof rests; program: the digest of the
    program. Terms() is of an agent of an older version, which announces none."""

    feed_lease_s: float = 0
    lead_lease_s: float = 0
    clock_drift: float = 0
    times: str = ""
    program: str = ""

    def differs(self, reference: Terms) -> str:
        """In what two machines differ, or nothing."""
        if not self.times or not reference.times:
            return "an older version, which does not announce its times"
        differences = ["other times"] if self.times != reference.times else []
        differences += ["another program"] if self.program != reference.program else []
        return " and ".join(differences)


def settings_digest(
    policy: HaPolicy, members: Iterable[str], masters: Iterable[str], pools: Iterable[str]
) -> str:
    """The digest of all that machines must have alike, as agents and masters announce it."""
    times = {
        key: value if isinstance(value, str) else float(value)
        for key, value in asdict(policy).items()
    }
    content = [times, sorted(members), sorted(masters), sorted(pools)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class HaPolicy:
    """The same on all machines: what one of them proves rests on what the others keep to.

    beat_s: so often a host and a master tell what they know. suspect_s: a host that was silent so
    long may be gone. feed_lease_s: so long after it sent the beat that was acknowledged a host may
    feed its watchdog. watchdog_s: unfed so long, the watchdog cuts the power. lead_lease_s: so long
    after it was asked an agent grants the lead to nobody else. clock_drift: the most by which two
    clocks differ in one second, in seconds. margin_s: is added to each wait that proves something.

    max_fences: so many hosts at most may be fenced in fence_window_s. fence_retry_s: between two
    attempts. starts_at_once: guests that start at one time on a host. storage_lost_s: after so long
    without its storage a host's guests are taken to others that have it. stable_s: a guest that ran
    so long has all its tries again. shutdown_policy: what becomes of the guests of a host that
    shuts down in order; shutdown_wait_s: how long it waits for that. reserve: room is kept for the
    loss of so many hosts.
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
        """So much longer may a time be by a clock that is fast than by one that is slow. Who
        announces a clock that may stand still is never waited for long enough."""
        if self.clock_drift >= 1:
            return math.inf
        return (1 + self.clock_drift) / (1 - self.clock_drift)

    def terms(self, program: str) -> Terms:
        """What a machine announces that keeps to these times, and runs that program."""
        times = _times_digest(self)
        return Terms(self.feed_lease_s, self.lead_lease_s, self.clock_drift, times, program)

    def must_have_fired_s(self, watchdog_s: float, terms: Terms = Terms()) -> float:
        """So long after the last beat that can have been acknowledged the watchdog has fired.
        watchdog_s, terms: as the host announced them; of each time the longer one counts.

        The watchdog counts twice: the process that feeds it may be stopped between the look at its
        lease and the feeding, for almost as long as the watchdog bears.
        """
        feed_lease_s = max(self.feed_lease_s, terms.feed_lease_s)
        watchdog_s = max(self.watchdog_s, watchdog_s)
        drift = max(self.drift, replace(self, clock_drift=terms.clock_drift).drift)
        return (feed_lease_s + 2 * watchdog_s) * drift + self.margin_s

    def lead_by(self, terms: Iterable[Terms]) -> HaPolicy:
        """By which a master may lead that was granted the lead on those terms: of each time the one
        that ends the lead sooner."""
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
        """So long after it asked for it a master may lead: less than agents keep it for him."""
        return self.lead_lease_s / self.drift - self.beat_s / 2

    def on_shutdown(self, reboot: bool) -> str:
        """freeze, failover or migrate, of a host that goes down, or comes again at once."""
        if self.shutdown_policy == CONDITIONAL:
            return FREEZE if reboot else FAILOVER
        return self.shutdown_policy


@functools.lru_cache(maxsize=64)
def _times_digest(policy: HaPolicy) -> str:
    """The digest of all times of a policy on which a proof rests. Each beat announces it."""
    times = {key: float(value) for key, value in asdict(policy).items() if key not in _NO_PROOF}
    return hashlib.sha256(json.dumps(times, sort_keys=True).encode()).hexdigest()
