"""Record what hypervisors report about libvirt's events.

Any minion can send an event with any tag and id, so only a report that is signed with the accepted
key of the host counts, and a former report counts once. Each host has files of its own: a host
cannot displace what others have reported.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from saltvirt import errors, sanitize
from saltvirt.answers import host_events
from saltvirt.answers.host_events import EventReport, HostEvent
from saltvirt.fleet import proof, target
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.journal import event_log, times
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.operations.journal.event_log import ReportState

# how often silent hosts are looked for
CHECK_S = 2
# a host is silent after so many intervals without a report
_MISSED = 3
_HOSTS_S = 30
# clocks of hosts may differ by so much
_CLOCK_S = 3600
_LONGEST_INTERVAL_S = 600
_MAX_NAME, _MAX_SESSION = 253, 64
# a clock that is ahead by more than this may have been corrected since
_AHEAD_S = 60
# an engine that has not listened for so long has waited, or its machine has
_BLOCKED_S = 10
# any minion can cause warnings about a host
_WARNING_S = 600

log = logging.getLogger(__name__)


class EventReceiver:
    """Verifies and records reports. opts: the master's configuration. now, monotonic: clocks."""

    def __init__(
        self,
        opts: dict[str, Any],
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opts, self._now, self._monotonic = opts, now, monotonic
        self._states = event_log.states(opts)
        # hosts that were heard of before this engine started have time to report again
        self._heard_s = dict.fromkeys(self._states, monotonic())
        self._hosts: tuple[float, frozenset[str]] | None = None
        self._checked_s = monotonic()
        self._warned_s: dict[str, float] = {}

    def receive(self, tag: str, data: Any) -> None:
        """Record the new events of a report."""
        host = tag.removeprefix(host_events.TAG)
        if not isinstance(data, dict) or host not in self._hypervisors():
            return
        report = self._verified(host, data.get("data"))
        state = self._states.get(host, ReportState(host))
        now_s = self._now()
        if report is None or not self._is_new(state, report, now_s):
            return
        last = state.last_number(report.session)
        new = [event for event in report.events if event.number > last]
        new = sorted(new, key=lambda event: event.number)[-host_events.MAX_EVENTS :]
        entries = [entry for event in new if (entry := _entry(host, event, now_s))]
        if state.is_silent:
            entries.insert(0, _own_entry(host, now_s, "returned", "it reports events again", True))
        interval_s = min(max(report.interval_s, 1), _LONGEST_INTERVAL_S)
        number = new[-1].number if new else last
        changed = ReportState(
            host, report.session, number, report.sent_s, interval_s,
            former=state.sessions_before(report.session),
        )  # fmt: skip
        self._store(changed, entries)

    def _is_new(self, state: ReportState, report: EventReport, now_s: float) -> bool:
        """Return whether the report is not a former one, as far as the clock of the host says."""
        if report.sent_s >= now_s + _CLOCK_S:
            self._warn(state.host, "no events are recorded: its clock is more than an hour ahead")
            return False
        if state.sent_s > now_s + _AHEAD_S:
            return report.sent_s > now_s - _AHEAD_S
        return report.sent_s > state.sent_s

    def _warn(self, host: str, text: str) -> None:
        now_s = self._monotonic()
        if now_s - self._warned_s.get(host, -_WARNING_S) >= _WARNING_S:
            self._warned_s[host] = now_s
            log.warning("%s: %s", host, text)

    def check_silence(self) -> None:
        """Record which hosts have stopped to report."""
        now_s = self._monotonic()
        blocked_s, self._checked_s = now_s - self._checked_s, now_s
        if blocked_s > _BLOCKED_S:  # reports of this time may still wait in the queue
            heard = self._heard_s.items()
            self._heard_s = {host: min(heard_s + blocked_s, now_s) for host, heard_s in heard}
        for host, state in self._states.items():
            silent_s = now_s - self._heard_s[host]
            if state.is_silent or silent_s <= _MISSED * state.interval_s + CHECK_S:
                continue
            if host not in self._hypervisors():
                continue
            text = "no report from its engine virt_log: host, minion or network is down"
            entry = _own_entry(host, self._now(), "silent", text, False)
            self._states[host] = replace(state, is_silent=True)
            event_log.store(self._opts, self._states[host], [entry])

    def _store(self, state: ReportState, entries: list[LogEntry]) -> None:
        event_log.store(self._opts, state, entries)
        self._states[state.host], self._heard_s[state.host] = state, self._monotonic()

    def _hypervisors(self) -> frozenset[str]:
        """Return the hypervisors of this master, as known for half a minute."""
        if self._hosts is None or self._monotonic() - self._hosts[0] > _HOSTS_S:
            try:
                hosts = frozenset(target.hosts(self._opts))
            except errors.VirtError as exc:
                log.warning("no events are recorded: %s", exc.text)
                hosts = frozenset()
            self._hosts = self._monotonic(), hosts
        return self._hosts[1]

    def _verified(self, host: str, signed: Any) -> EventReport | None:
        """Return the report that the host has signed; None if it has not."""
        key = KeyStore(self._opts).of_host(host)
        if key is None:  # below a syndic, which alone knows the key
            return None
        payload = proof.verify(host, host_events.JID, host_events.FUNCTION, signed, key)
        if payload is None:
            self._warn(host, "a report of events was not signed by this host")
            return None
        try:
            report = EventReport.from_answer(payload, "the report of events")
        except errors.BadAnswer as exc:
            self._warn(host, sanitize.one_line(exc.text))
            return None
        return report if len(report.session) <= _MAX_SESSION else None


def _entry(host: str, event: HostEvent, now_s: float) -> LogEntry | None:
    """Return the log's entry of an event; None if its state is unknown."""
    detail = sanitize.one_line(event.detail)[: host_events.MAX_DETAIL]
    comment = host_events.describe(event.state, detail)
    if comment is None:
        return None
    # a wrong clock of the host must not move the event out of its place
    time_s = min(max(event.time_s, now_s - _CLOCK_S), now_s)
    guest = None if event.guest is None else sanitize.one_line(event.guest)[:_MAX_NAME]
    return LogEntry(
        times.recorded(time_s), 0, event_log.LIBVIRT, event_log.EVENT, guest, host,
        not event.is_failure, comment, state=event.state.replace("_", " "),
    )  # fmt: skip


def _own_entry(host: str, now_s: float, state: str, comment: str, result: bool) -> LogEntry:
    """Return an entry about a host that this master has noticed itself."""
    return LogEntry(
        times.recorded(now_s), 0, event_log.MASTER, event_log.EVENT, None, host, result, comment,
        state=state,
    )  # fmt: skip
