"""How patient high availability is, and how much it may do: ``virt:ha``."""

from __future__ import annotations

from dataclasses import dataclass

FREEZE, FAILOVER, MIGRATE, CONDITIONAL = "freeze", "failover", "migrate", "conditional"
SHUTDOWN_POLICIES = (FREEZE, FAILOVER, MIGRATE, CONDITIONAL)


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
        """So much longer may a time be by a clock that is fast than by one that is slow."""
        return (1 + self.clock_drift) / (1 - self.clock_drift)

    def must_have_fired_s(self, watchdog_s: float) -> float:
        """So long after the last beat that can have been acknowledged the watchdog has fired.

        The watchdog counts twice: the process that feeds it may be stopped between the look at its
        lease and the feeding, for almost as long as the watchdog bears.
        """
        return (self.feed_lease_s + 2 * watchdog_s) * self.drift + self.margin_s

    @property
    def lead_s(self) -> float:
        """So long after it asked for it a master may lead: less than agents keep it for him."""
        return self.lead_lease_s / self.drift - self.beat_s / 2

    def on_shutdown(self, reboot: bool) -> str:
        """freeze, failover or migrate, of a host that goes down, or comes again at once."""
        if self.shutdown_policy == CONDITIONAL:
            return FREEZE if reboot else FAILOVER
        return self.shutdown_policy
