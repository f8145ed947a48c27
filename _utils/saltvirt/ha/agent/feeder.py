"""Feeding of the watchdog: when the device is armed, fed and disarmed, on a thread of its own,
independent of the agent's other work."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from saltvirt.ha.agent.watchdog import WatchdogDevice
from saltvirt.ha.model import agent_facts, agent_view, safety

if TYPE_CHECKING:
    from saltvirt.ha.agent.store import AgentStore
    from saltvirt.ha.model.agent import AgentStep
    from saltvirt.ha.model.agent_view import AgentState
    from saltvirt.ha.model.policy import HaPolicy

log = logging.getLogger(__name__)

# feeding interval, in heartbeats
_FEED_BEATS = 0.5


class Feeder:
    """Feeds the watchdog while the lease of the last step holds. The proof depends only on time, so
    the agent's other work does not matter.

    watchdog: the device. store: records that the device is open, for the agent's successor. clock:
    of this boot.
    """

    def __init__(
        self,
        watchdog: WatchdogDevice,
        store: AgentStore,
        policy: HaPolicy,
        clock: Callable[[], float],
    ) -> None:
        self._watchdog, self._store, self._policy, self._clock = watchdog, store, policy, clock
        self._every_s = _FEED_BEATS * policy.beat_s
        self._until_s: float | None = None
        self._guard = threading.Lock()
        self._stopped = threading.Event()

    def resume(self, state: AgentState, lease_from_s: float | None) -> None:
        """Arm and feed a watchdog that an agent of this boot may have left armed, while the lease
        from before the restart holds. lease_from_s: since when; None: there was none."""
        may_be_armed = state.believed or self._store.opened
        lease_s = agent_facts.feed_lease_s(state, self._policy)
        if may_be_armed and safety.lease_holds(lease_from_s, self._clock(), lease_s):
            self._watchdog.arm()
            self.feed_until((lease_from_s or 0) + lease_s)

    def begin(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="feeder", daemon=True).start()

    def end(self) -> None:
        """Stop feeding. The watchdog stays armed."""
        self._until_s = None
        self._stopped.set()

    def follow(self, step: AgentStep) -> None:
        """Allow feeding while the lease of this step holds, with the timeouts that other machines
        assume."""
        feeds = any(action.kind == agent_view.FEED for action in step.actions)
        lease_s = agent_facts.feed_lease_s(step.state, self._policy)
        self.feed_until((step.state.lease_from_s or 0) + lease_s if feeds else None)
        if step.state.watchdog_s is not None:
            self._watchdog.accept_timeout(step.state.watchdog_s)

    def arm(self, state: AgentState) -> None:
        """Arm the watchdog. Record it first: the agent may be killed at this moment, and its
        successor must feed the watchdog. Raises OSError, and arms nothing, if it cannot be
        recorded."""
        self._store.opened = True
        self._store.save_runtime(state)
        self._watchdog.arm()

    def disarm(self) -> None:
        """Disarm the watchdog."""
        self._watchdog.disarm()

    def disarm_unannounced(self, state: AgentState) -> None:
        """Before a restart, disarm a watchdog of which no other machine knows that it is armed: the
        next agent would not feed it."""
        if state.believed:
            return
        self._watchdog.disarm()
        self._store.opened = False
        with contextlib.suppress(OSError):
            self._store.save_runtime(state)

    def feed_until(self, end_s: float | None) -> None:
        """Allow feeding until that time; None: stop feeding."""
        self._until_s = end_s
        self._feed()

    def _feed(self) -> None:
        """Feed the watchdog if allowed. Only one thread checks and feeds at a time:
        ``HaPolicy.must_have_fired_s`` accounts for one delay between the check and the feeding, not
        for two."""
        with self._guard:
            until_s = self._until_s
            if until_s is not None and self._clock() < until_s:
                self._watchdog.feed()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._feed()
            except Exception as exc:  # if this thread ended, the host would lose its power
                log.exception("cannot feed the watchdog: %s", exc)
            self._stopped.wait(self._every_s)
