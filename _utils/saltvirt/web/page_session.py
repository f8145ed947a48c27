"""The connection of one web page: send what has changed since the last message, as JSON.

For a snapshot: ``{"at", "hosts": {host: {"query", "info"}}, "gone": [host, …], "answered",
"disarmed", "usage"}`` with the changed hosts only, or ``{"error"}``; for an event: ``{"event":
[tag, data]}``. ``usage``: new samples, each with ``at`` and ``hosts`` as in ``virt.top``.

``answered``: the number of refresh commands that the snapshot answers.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from saltvirt import errors

try:
    from tornado import locks
except ImportError:  # Salt 3006 bundles its own copy
    from salt.ext.tornado import locks  # type: ignore[no-redef]

if TYPE_CHECKING:
    from saltvirt.web.cluster_view import ClusterView, UserView, ViewSnapshot
    from saltvirt.web.page_events import PageEvent

# the command by which a page requests a refresh
REFRESH_COMMAND = "look"
_REFRESH_DELAY_S = 0.2
# events that a slow page has not received yet; older ones are dropped. Refresh commands that are
# not answered yet; further ones are ignored
_MAX_EVENTS, _MAX_PENDING = 200, 100

# calls a function with one argument in another thread
RunInThread = Callable[[Callable[[Any], Any], Any], Awaitable[Any]]


class PageSession:
    """One page. send: sends a text and waits until the page accepts more. loop: the event loop of
    all pages."""

    def __init__(
        self, view: ClusterView, user: str | None, send: Callable[[str], Awaitable[None]], loop: Any
    ) -> None:
        self._view, self._user, self._send, self._loop = view, user, send, loop
        self._wakeup = locks.Event()
        self._events: deque[PageEvent] = deque(maxlen=_MAX_EVENTS)
        self._sent_digests: dict[str, str] = {}
        self._usage_at = 0.0
        self._last: ViewSnapshot | None = None
        # the number of the snapshot that answers each pending refresh command; how many have been
        # answered
        self._pending: deque[int] = deque()
        self._answered = 0
        self._is_closed = False

    def request_refresh(self) -> None:
        """Query the hypervisors soon, because the page asked for it."""
        if len(self._pending) < _MAX_PENDING:
            self._pending.append(self._view.request_refresh(_REFRESH_DELAY_S))

    def close(self) -> None:
        """End the session."""
        self._is_closed = True
        self._wakeup.set()

    def snapshot_taken(self) -> None:
        """Called in another thread: a new snapshot exists."""
        self._loop.add_callback(self._wakeup.set)

    def event_received(self, event: PageEvent) -> None:
        """Called in another thread: an event arrived."""
        self._loop.add_callback(self._queue_event, event)

    def _queue_event(self, event: PageEvent) -> None:
        self._events.append(event)
        self._wakeup.set()

    async def run(self, run_in_thread: RunInThread) -> None:
        """Send messages until the session is closed."""
        with self._view.subscribed(self):
            while not self._is_closed:
                self._wakeup.clear()
                await self._send_events(run_in_thread)
                await self._send_snapshot(run_in_thread)
                await self._wakeup.wait()

    async def _send_events(self, run_in_thread: RunInThread) -> None:
        while self._events and not self._is_closed:
            event = self._events.popleft()
            data = await run_in_thread(self._event_data, event)
            if data is not None:
                await self._send(json.dumps({"event": [event.tag, data]}))

    def _event_data(self, event: PageEvent) -> dict[str, Any] | None:
        try:
            return self._view.event_for_user(self._user, event)
        except errors.VirtError:
            return None

    async def _send_snapshot(self, run_in_thread: RunInThread) -> None:
        if self._view.last is self._last or self._is_closed or not self._view.last.number:
            return
        try:
            user_view: UserView = await run_in_thread(self._view.for_user, self._user)
        except errors.VirtError as exc:
            self._last = self._view.last
            await self._send(json.dumps({"error": exc.text}))
            return
        self._last = user_view.snapshot
        await self._send(self._snapshot_text(user_view))

    def _snapshot_text(self, user_view: UserView) -> str:
        while self._pending and self._pending[0] <= user_view.snapshot.number:
            self._pending.popleft()
            self._answered += 1
        head: dict[str, Any] = {
            "at": user_view.snapshot.taken_at, "answered": self._answered,
            "disarmed": user_view.snapshot.disarmed,
        }  # fmt: skip
        if user_view.snapshot.error:
            return json.dumps({**head, "error": user_view.snapshot.error})
        if user_view.has_usage and (usage := self._view.usage.since(self._usage_at)):
            head["usage"], self._usage_at = usage, usage[-1]["at"]
        changed = {host: text for host, (digest, text) in user_view.texts.items()
                 if self._sent_digests.get(host) != digest}  # fmt: skip
        head["gone"] = sorted(self._sent_digests.keys() - user_view.texts.keys())
        self._sent_digests = {host: digest for host, (digest, _) in user_view.texts.items()}
        hosts = ", ".join(f"{json.dumps(host)}: {text}" for host, text in changed.items())
        return f'{json.dumps(head)[:-1]}, "hosts": {{{hosts}}}}}'
