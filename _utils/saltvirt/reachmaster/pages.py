"""One page's end: it is told what has changed since it was told the last time, in JSON.

Of each look ``{"at", "hosts": {host: {"query", "info"}}, "gone": [host, …], "answered",
"disarmed"}``, with the hosts alone that are otherwise, or ``{"error"}``; of an event ``{"event":
[tag, data]}``.
``answered``: of how many of its words LOOK the answer is in it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from saltvirt import errors

try:
    from tornado import locks
except ImportError:  # Salt 3006 has its own
    from salt.ext.tornado import locks  # type: ignore[no-redef]

if TYPE_CHECKING:
    from saltvirt.reachmaster.news import News
    from saltvirt.reachmaster.view import Look, Seen, View

# what a page says when it wants the hypervisors asked
LOOK = "look"
_LOOK_S = 0.2
# events that a page which is slow has not taken yet, of more the oldest are lost; and words LOOK
# that are not answered yet, more are not heard
_MOST_EVENTS, _MOST_ASKED = 200, 100

# calls a function with one argument in another thread
Asked = Callable[[Callable[[Any], Any], Any], Awaitable[Any]]


class Page:
    """say: sends it a text, and is awaited until the page takes more. loop: of all pages."""

    def __init__(
        self, view: View, user: str | None, say: Callable[[str], Awaitable[None]], loop: Any
    ) -> None:
        self._view, self._user, self._say, self._loop = view, user, say, loop
        self._news = locks.Event()
        self._events: deque[News] = deque(maxlen=_MOST_EVENTS)
        self._told: dict[str, str] = {}
        self._last: Look | None = None
        # of its words LOOK: the look that is the answer to each; how many are answered
        self._asked: deque[int] = deque()
        self._answered = 0
        self._is_over = False

    def look(self) -> None:
        """It wants the hypervisors asked."""
        if len(self._asked) < _MOST_ASKED:
            self._asked.append(self._view.soon(_LOOK_S))

    def close(self) -> None:
        """It is gone."""
        self._is_over = True
        self._news.set()

    def looked(self) -> None:
        """In another thread: there is a new look."""
        self._loop.add_callback(self._news.set)

    def heard(self, told: News) -> None:
        """In another thread: an event."""
        self._loop.add_callback(self._hear, told)

    def _hear(self, told: News) -> None:
        self._events.append(told)
        self._news.set()

    async def run(self, asked: Asked) -> None:
        """Until it is closed."""
        with self._view.watched(self):
            while not self._is_over:
                self._news.clear()
                await self._tell_events(asked)
                await self._tell_look(asked)
                await self._news.wait()

    async def _tell_events(self, asked: Asked) -> None:
        while self._events and not self._is_over:
            told = self._events.popleft()
            data = await asked(self._words_of, told)
            if data is not None:
                await self._say(json.dumps({"event": [told.tag, data]}))

    def _words_of(self, told: News) -> dict[str, Any] | None:
        try:
            return self._view.told_to(self._user, told)
        except errors.VirtError:
            return None

    async def _tell_look(self, asked: Asked) -> None:
        if self._view.last is self._last or self._is_over or not self._view.last.number:
            return
        try:
            seen: Seen = await asked(self._view.seen, self._user)
        except errors.VirtError as exc:
            self._last = self._view.last
            await self._say(json.dumps({"error": exc.text}))
            return
        self._last = seen.look
        await self._say(self._news_of(seen))

    def _news_of(self, seen: Seen) -> str:
        while self._asked and self._asked[0] <= seen.look.number:
            self._asked.popleft()
            self._answered += 1
        head: dict[str, Any] = {
            "at": seen.look.at, "answered": self._answered, "disarmed": seen.look.disarmed,
        }  # fmt: skip
        if seen.look.why:
            return json.dumps({**head, "error": seen.look.why})
        other = {host: text for host, (digest, text) in seen.texts.items()
                 if self._told.get(host) != digest}  # fmt: skip
        head["gone"] = sorted(self._told.keys() - seen.texts.keys())
        self._told = {host: digest for host, (digest, _) in seen.texts.items()}
        hosts = ", ".join(f"{json.dumps(host)}: {text}" for host, text in other.items())
        return f'{json.dumps(head)[:-1]}, "hosts": {{{hosts}}}}}'
