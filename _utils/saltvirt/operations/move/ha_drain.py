"""Wait for guests that another engine, such as high availability, moves away from a host."""

from __future__ import annotations

import time
from collections.abc import Callable

from saltvirt import errors, units
from saltvirt.operations.cluster import ha_provider
from saltvirt.operations.core.report import Report
from saltvirt.operations.move import moves
from saltvirt.placement.facts import Host
from saltvirt.system.file_lock import Opts

POLL_S = 5
# guests that are off are not awaited: the engine does not move them
_ACTIVE_STATES = ("running", "paused")


class HaManagedDrain:
    """Waits for managed guests to leave a host.

    timeout_s: how long it waits without progress. read_hosts: returns the current inventories of
    hosts; raises ConnectionFailed if one does not answer. wait: sleeps. idle_reason: returns why
    the engine does not move guests now, or "". pending_arrivals: returns why guests may still move
    to the host, or ""."""

    def __init__(
        self,
        opts: Opts,
        read_hosts: Callable[[list[str]], list[Host]],
        report: Report,
        timeout_s: float,
        wait: Callable[[float], None] = time.sleep,
        idle_reason: Callable[[], str] = str,
        pending_arrivals: Callable[[], str] = str,
    ) -> None:
        self.idle_reason, self.pending_arrivals = idle_reason, pending_arrivals
        self.read_hosts, self.report = read_hosts, report
        self.timeout_s, self.wait = timeout_s, wait
        self.managers = ha_provider.managed_guests(opts)

    def drain(self, host: str, other_hosts: list[str]) -> moves.MovesOutcome:
        """Wait until no managed guest runs on the host or moves to it. Guests that stay are
        reported with their manager."""
        outcome = moves.MovesOutcome()
        if not self.managers:
            return outcome
        try:
            # queried first: a guest that arrives later is reported by the host
            coming = self.pending_arrivals()
            running = all_running = self._running(host)
        except errors.ConnectionFailed as exc:
            outcome.unmoved[host] = f"its remaining guests are unknown: {exc.text}"
            return outcome
        waited_s = 0.0
        while (running or coming) and waited_s < self.timeout_s and not self.idle_reason():
            if waited_s == 0 and running:
                self.report.step("waits", f"{_list(running)} left to their manager")
            self.wait(POLL_S)
            waited_s += POLL_S
            try:
                coming, still_running = self.pending_arrivals(), self._running(host)
            except errors.ConnectionFailed as exc:
                outcome.unmoved[host] = f"its remaining guests are unknown: {exc.text}"
                break
            if still_running != running:
                running, all_running, waited_s = still_running, all_running | still_running, 0.0
        reason = self.idle_reason() if running else ""
        reason = reason or f"it did not leave within {self.timeout_s:.0f} s"
        unmoved = {name: self.managers[name] for name in running if name in self.managers}
        outcome.unmoved |= {
            name: f"{reason}; it is managed by {manager}" for name, manager in unmoved.items()
        }
        if coming and not running and not self.idle_reason():
            outcome.unmoved.setdefault(host, f"guests may still move to it: {coming}")
        targets = [name for name in other_hosts if name != host]
        outcome.moved |= self._new_hosts(all_running - running, targets)
        return outcome

    def _running(self, host: str) -> frozenset[str]:
        [host_facts] = self.read_hosts([host])
        return frozenset(
            guest.name
            for guest in host_facts.guests
            if guest.name in self.managers and guest.state in _ACTIVE_STATES
        )

    def _new_hosts(self, departed: frozenset[str], other_hosts: list[str]) -> dict[str, str]:
        if not departed:
            return {}
        return {
            guest.name: host_facts.name
            for host_facts in self.read_hosts(other_hosts)
            for guest in host_facts.guests
            if guest.name in departed and guest.state in _ACTIVE_STATES
        }


def _list(names: frozenset[str]) -> str:
    return f"{units.pluralize(len(names), 'guest')} ({', '.join(sorted(names))})"
