"""The cloud as pages see it: query the hypervisors once for all pages, and filter the result for
each user.

If no page is open, no hypervisor is queried and no event is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import salt.utils.event

from saltvirt import errors
from saltvirt.answers.guest_calls import SHOW_HOST, HostRequest
from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import access_check
from saltvirt.operations.cluster import inventory
from saltvirt.operations.journal import location_cache
from saltvirt.placement import facts, policy
from saltvirt.web import page_events
from saltvirt.web.usage_history import UsageHistory

# interval of queries; delay after an event that may change something, to combine events; minimum
# time between queries
INTERVAL_S, REFRESH_DELAY_S, MIN_INTERVAL_S = 30, 1.5, 3
_RETRY_S = 10
_EVENT_WAIT_S = 5
# values that change constantly and that no page shows
_UNSHOWN, _UNSHOWN_OF_GUEST = ("freecpu", "freemem"), ("cputime",)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ViewSnapshot:
    """The state of the cloud at one time.

    number: count of snapshots so far. taken_at: in seconds since 1970. query, info: the results of
    virt.query and virt.host_info. disarmed: whether high availability is disarmed. error: why there
    is no result.
    """

    number: int
    taken_at: float
    query: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    hosts: list[facts.Host] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    disarmed: bool = False
    error: str = ""


NONE = ViewSnapshot(0, 0.0)


@dataclass(frozen=True)
class UserView:
    """What one user may see of a snapshot.

    texts: host to (digest of its text, its text: JSON with ``query`` and ``info``). guests: names.
    is_all: the user may see all guests. has_usage: the user may see what hosts and guests use.
    """

    snapshot: ViewSnapshot
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    guests: frozenset[str] = frozenset()
    is_all: bool = False
    has_usage: bool = False


class ClusterView:
    """Takes snapshots while pages are open. opts: of the master. disarmed: whether high
    availability is disarmed. fleet: creates a Fleet."""

    def __init__(
        self,
        opts: dict[str, Any],
        disarmed: Callable[[], bool],
        fleet: Callable[[dict[str, Any]], Any] = Fleet,
    ) -> None:
        self.opts, self._disarmed, self._fleet = opts, disarmed, fleet
        self._change = threading.Condition()
        self._watching: list[page_events.PageListener] = []
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._next_at = 0.0
        self._last_number = 0
        self.last = NONE
        self.usage = UsageHistory()
        self._user_views: dict[str | None, UserView] = {}

    @contextlib.contextmanager
    def subscribed(self, listener: page_events.PageListener) -> Iterator[None]:
        """Send snapshots and events to the listener during the block. Its methods are called in
        other threads."""
        with self._change:
            self._watching.append(listener)
            if len(self._watching) == 1:
                self.last, self._next_at = NONE, time.monotonic()
            if not self._threads:
                for work in (self._poll, self._listen):
                    self._threads.append(threading.Thread(target=work, daemon=True))
                    self._threads[-1].start()
            self._change.notify_all()
        try:
            yield
        finally:
            with self._change:
                self._watching.remove(listener)

    def close(self) -> None:
        """End the threads."""
        with self._change:
            self._is_closed = True
            self._change.notify_all()

    def request_refresh(self, delay_s: float = REFRESH_DELAY_S) -> int:
        """Query the hypervisors soon. Returns the number of the first snapshot that shows the
        current state."""
        with self._change:
            self._next_at = min(self._next_at, time.monotonic() + delay_s)
            self._change.notify_all()
            return self._last_number + 1

    def for_user(self, user: str | None) -> UserView:
        """What the user may see of the last snapshot. Raises Denied, BadAnswer."""
        snapshot, user_view = self.last, self._user_views.get(user)
        if user_view is None or user_view.snapshot is not snapshot:
            user_view = self._build_user_view(snapshot, user)
            if len(self._user_views) > len(self._watching):
                self._user_views = {}
            self._user_views[user] = user_view
        return user_view

    def _build_user_view(self, snapshot: ViewSnapshot, user: str | None) -> UserView:
        is_all = access_check.may_all(self.opts, user, "query")
        if snapshot.error:
            return UserView(snapshot, is_all=is_all)
        query = access_check.visible_to(
            self.opts, user, snapshot.query, snapshot.hosts, snapshot.unreachable
        )
        info = snapshot.info if access_check.may_all(self.opts, user, "host_info") else {}
        texts, guests = {}, set[str]()
        for host in sorted({*query, *info}):
            host_query = _shown_query(query.get(host))
            guests |= (host_query.get("vm_info") or {}).keys()
            host_data = {"query": host_query, **({"info": info[host]} if host in info else {})}
            text = json.dumps(host_data, sort_keys=True)
            texts[host] = hashlib.sha256(text.encode()).hexdigest(), text
        has_usage = access_check.may_all(self.opts, user, "top")
        return UserView(snapshot, texts, frozenset(guests), is_all, has_usage)

    def _is_due(self) -> bool:
        """Wait until a page is open and the next query is due; False: the view is closed."""
        with self._change:
            while not self._is_closed:
                remaining_s = self._next_at - time.monotonic()
                if self._watching and remaining_s <= 0:
                    break
                self._change.wait(remaining_s if self._watching else None)
            self._next_at = time.monotonic() + INTERVAL_S
            self._last_number += 1
            return not self._is_closed

    def _poll(self) -> None:
        while self._is_due():
            self.last = self._query_cluster()
            with self._change:
                watching = list(self._watching)
            for listener in watching:
                listener.snapshot_taken()
            time.sleep(MIN_INTERVAL_S)

    def _query_cluster(self) -> ViewSnapshot:
        number, taken_at = self._last_number, time.time()
        try:
            with self._fleet(self.opts) as fleet:
                hosts = fleet.hosts()
                answers, failed = SHOW_HOST.gather(fleet, hosts, HostRequest())
                query = {host: info.to_answer() for host, info in answers.items()}
                query |= {host: {"error": error} for host, error in failed.items()}
                host_facts, unreachable = inventory.gather(fleet, hosts)
                self.usage.sample(fleet, [host for host in hosts if host not in unreachable])
            info = inventory.summaries(host_facts, unreachable, policy.of_master(self.opts))
            query = location_cache.with_last_seen(self.opts, query)
            return ViewSnapshot(
                number, taken_at, query, info, host_facts, unreachable, self._disarmed()
            )
        except errors.VirtError as exc:
            return ViewSnapshot(number, taken_at, error=exc.text)
        except Exception:
            log.exception("cannot query the hypervisors for pages")
            return ViewSnapshot(
                number,
                taken_at,
                error="the hypervisors cannot be queried; the reason is in the master's log",
            )

    def _listen(self) -> None:
        """Read the master's events while pages are open."""
        while True:
            with self._change:
                self._change.wait_for(lambda: self._watching or self._is_closed)
            if self._is_closed:
                return
            try:
                self._read()
            except Exception:
                log.exception("cannot read the master's events for pages")
                time.sleep(_RETRY_S)

    def _read(self) -> None:
        with salt.utils.event.get_event(
            "master", sock_dir=self.opts["sock_dir"], opts=self.opts, listen=True
        ) as bus:
            while self._watching and not self._is_closed:
                event = bus.get_event(wait=_EVENT_WAIT_S, full=True, auto_reconnect=True)
                if event and isinstance(event.get("data"), dict):
                    self.handle_event(str(event["tag"]), event["data"])

    def handle_event(self, tag: str, data: dict[str, Any]) -> None:
        """Handle an event of the master."""
        event = page_events.read(tag, data)
        if event is None:
            return
        if event.needs_refresh:
            self.request_refresh()
        if event.is_shown:
            with self._change:
                watching = list(self._watching)
            for listener in watching:
                listener.event_received(event)

    def event_for_user(
        self, user: str | None, event: page_events.PageEvent
    ) -> dict[str, Any] | None:
        """The data of an event that the user may see, or None: about guests that the user sees or
        is creating, and results of the user's own operations.

        Uses the rights at the time of the last snapshot, because asking Salt's authentication for
        the user's groups would take longer than the time between events. Raises Denied, BadAnswer.
        """
        if event.user is not None:
            return event.data if user is None or event.user == user else None
        user_view = self.for_user(user)
        if user_view.is_all:
            return event.data
        if event.subject in user_view.guests or access_check.is_making(
            self.opts, user, event.subject
        ):
            redacted: dict[str, Any] = access_check.redact(event.data)
            return redacted
        return None


def _shown_query(host_query: Any) -> dict[str, Any]:
    """The part of a host's virt.query that pages show."""
    if not isinstance(host_query, dict):
        return {}
    shown = _without(host_query, _UNSHOWN)
    guests = host_query.get("vm_info")
    if isinstance(guests, dict):
        shown["vm_info"] = {
            name: _without(guest, _UNSHOWN_OF_GUEST) for name, guest in guests.items()
            if isinstance(guest, dict)
        }  # fmt: skip
    return shown


def _without(data: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in keys}
