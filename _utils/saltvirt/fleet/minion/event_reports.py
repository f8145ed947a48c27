"""Report libvirt's events to the master, signed by the minion: any minion could send an event in
the name of another."""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from saltvirt import errors
from saltvirt.answers import host_events
from saltvirt.answers.host_events import EventReport, HostEvent
from saltvirt.fleet import proof
from saltvirt.fleet.minion import events
from saltvirt.system import file_lock

# maximum number of events of a guest in an hour, and of its failures: it can reboot in a loop, as
# libvirt can
MAX_PER_HOUR = 60
# an event is reported again for so long: a report is lost if the master does not respond
REPEAT_S = 900
# events of this time are sent together
_PAUSE_S = 0.3
# pause between the attempts to become the only engine that reports
_WAIT_S = 10

log = logging.getLogger(__name__)


@contextlib.contextmanager
def only_reporter(
    opts: dict[str, Any], pause: Callable[[float], object] = time.sleep
) -> Iterator[None]:
    """Wait until no other engine of this host reports, and hold its place for the block.

    A minion with several masters starts the engine once for each of them, and each master receives
    what any of these reports.
    """
    path = Path(opts["cachedir"]) / "virt" / "virt_log.lock"
    handle = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while (handle := file_lock.acquire(path)) is None:
            pause(_WAIT_S)
    except OSError as exc:
        log.warning("events may be reported twice: %s", exc)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


class EventReporter:
    """Sends the events of this host, and a report without new events every interval_s.

    opts: of the minion. now: the clock.
    """

    def __init__(
        self, opts: dict[str, Any], interval_s: float, now: Callable[[], float] = time.time
    ) -> None:
        self._opts, self._interval_s, self._now = opts, interval_s, now
        self._session = secrets.token_hex(8)
        self._number = 0
        self._recent: collections.deque[HostEvent] = collections.deque(
            maxlen=host_events.MAX_EVENTS
        )
        self._hours: dict[tuple[str | None, bool], collections.deque[float]] = {}
        self._lock, self._is_new = threading.Lock(), threading.Event()
        self._stopped = False

    def add(self, guest: str | None, state: str, detail: str = "") -> None:
        """Report an event soon. guest: None for the host itself."""
        now_s = self._now()
        is_failure = HostEvent(0, now_s, guest, state, detail).is_failure
        with self._lock:
            hour = self._hours.setdefault((guest, is_failure), collections.deque())
            while hour and hour[0] < now_s - 3600:
                hour.popleft()
            if len(hour) > MAX_PER_HOUR:
                return
            hour.append(now_s)
            if len(hour) > MAX_PER_HOUR:
                state, detail = "unlogged", ""
            if state == "started":
                self._drop_resumption(guest)
            self._number += 1
            detail = detail[: host_events.MAX_DETAIL]
            self._recent.append(HostEvent(self._number, now_s, guest, state, detail))
        self._is_new.set()

    def _drop_resumption(self, guest: str | None) -> None:
        """Drop the last event of a guest if it is that its CPUs run: libvirt reports that of each
        start, before the start itself."""
        last = next((event for event in reversed(self._recent) if event.guest == guest), None)
        if last is not None and last.state == "resumed":
            self._recent.remove(last)

    def report(self) -> EventReport:
        """Return the report of this moment."""
        now_s = self._now()
        with self._lock:
            recent = [event for event in self._recent if event.time_s > now_s - REPEAT_S]
            self._hours = {key: hour for key, hour in self._hours.items()
                           if hour[-1] > now_s - 3600}  # fmt: skip
        return EventReport(self._session, now_s, self._interval_s, tuple(recent))

    def run(self) -> None:
        """Send reports until stop() is called."""
        while not self._stopped:
            if self._is_new.wait(self._interval_s):
                time.sleep(_PAUSE_S)
                self._is_new.clear()
            if not self._stopped:
                try:
                    self._send()
                except Exception:  # the next report has these events, too
                    log.exception("events of libvirt were not reported")

    def stop(self) -> None:
        """End run()."""
        self._stopped = True
        self._is_new.set()

    def _send(self) -> None:
        payload = self.report().to_answer()
        try:
            signed = proof.sign(self._opts, host_events.JID, host_events.FUNCTION, payload)
        except errors.OperationFailed as exc:
            log.error("events of libvirt were not reported: %s", exc.text)
            return
        events.send_all(self._opts, [(f"{host_events.TAG}{self._opts['id']}", signed)])
