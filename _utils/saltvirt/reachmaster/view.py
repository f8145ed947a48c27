"""The cloud as pages see it: the hypervisors are asked once for all pages, and each page is told
what its user may see of the answer.

While nobody watches, nobody is asked and no event is read.
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
from saltvirt.fleet.client import Fleet
from saltvirt.operations import allowed, hints, inventory
from saltvirt.placement import facts, policy
from saltvirt.reachmaster import news

# the hypervisors are asked so often; so long after what may have changed something, for more may
# come; and never sooner after the last time
EVERY_S, SOON_S, REST_S = 30, 1.5, 3
_AGAIN_S = 10
_EVENT_WAIT_S = 5
# what changes with each moment, and no page shows
_UNSHOWN, _UNSHOWN_OF_GUEST = ("freecpu", "freemem"), ("cputime",)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Look:
    """What was seen at one time. number: of looks until it. at: seconds since 1970. told, info: as
    virt.query and virt.host_info have them. disarmed: high availability is. why: there is none of
    it."""

    number: int
    at: float
    told: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    hosts: list[facts.Host] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    disarmed: bool = False
    why: str = ""


NONE = Look(0, 0.0)


@dataclass(frozen=True)
class Seen:
    """What one user sees of a look. texts: host to (digest of its text, its text: JSON with
    ``query`` and ``info``). guests: names. is_all: the user may see each guest."""

    look: Look
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    guests: frozenset[str] = frozenset()
    is_all: bool = False


class View:
    """opts: of the master. disarmed: is high availability? fleet: makes one."""

    def __init__(
        self,
        opts: dict[str, Any],
        disarmed: Callable[[], bool],
        fleet: Callable[[dict[str, Any]], Any] = Fleet,
    ) -> None:
        self.opts, self._disarmed, self._fleet = opts, disarmed, fleet
        self._change = threading.Condition()
        self._watching: list[news.Listener] = []
        self._threads: list[threading.Thread] = []
        self._due = 0.0
        self._begun = 0
        self.last = NONE
        self._seen: dict[str | None, Seen] = {}

    @contextlib.contextmanager
    def watched(self, one: news.Listener) -> Iterator[None]:
        """While it is told of each look and event. Its methods are called in other threads."""
        with self._change:
            self._watching.append(one)
            if len(self._watching) == 1:
                self.last, self._due = NONE, time.monotonic()
            if not self._threads:
                for work in (self._look_on, self._listen):
                    self._threads.append(threading.Thread(target=work, daemon=True))
                    self._threads[-1].start()
            self._change.notify_all()
        try:
            yield
        finally:
            with self._change:
                self._watching.remove(one)

    def soon(self, in_s: float = SOON_S) -> int:
        """Has the hypervisors asked before long. The number of the look that has seen what is so
        now."""
        with self._change:
            self._due = min(self._due, time.monotonic() + in_s)
            self._change.notify_all()
            return self._begun + 1

    def seen(self, user: str | None) -> Seen:
        """What this user may see of the last look. Raises Denied, BadAnswer."""
        look, found = self.last, self._seen.get(user)
        if found is None or found.look is not look:
            found = self._shown(look, user)
            if len(self._seen) > len(self._watching):
                self._seen = {}
            self._seen[user] = found
        return found

    def _shown(self, look: Look, user: str | None) -> Seen:
        is_all = allowed.may_all(self.opts, user, "query")
        if look.why:
            return Seen(look, is_all=is_all)
        told = allowed.seen_by(self.opts, user, look.told, look.hosts, look.unreachable)
        info = look.info if allowed.may_all(self.opts, user, "host_info") else {}
        texts, guests = {}, set[str]()
        for host in sorted({*told, *info}):
            asked = _shown_of(told.get(host))
            guests |= (asked.get("vm_info") or {}).keys()
            both = {"query": asked, **({"info": info[host]} if host in info else {})}
            text = json.dumps(both, sort_keys=True)
            texts[host] = hashlib.sha256(text.encode()).hexdigest(), text
        return Seen(look, texts, frozenset(guests), is_all)

    def _wait(self) -> None:
        """Until somebody watches and it is time."""
        with self._change:
            while not self._watching or (left := self._due - time.monotonic()) > 0:
                self._change.wait(left if self._watching else None)
            self._due = time.monotonic() + EVERY_S
            self._begun += 1

    def _look_on(self) -> None:
        while True:
            self._wait()
            self.last = self._looked()
            with self._change:
                watching = list(self._watching)
            for one in watching:
                one.looked()
            time.sleep(REST_S)

    def _looked(self) -> Look:
        number, at = self._begun, time.time()
        try:
            with self._fleet(self.opts) as fleet:
                hosts = fleet.hosts()
                told = {
                    host: answer.data if answer.ok else {"error": answer.error}
                    for host, answer in fleet.gather(hosts, "virt.full_info").items()
                }
                found, unreachable = inventory.gather(fleet, hosts)
            info = inventory.summaries(found, unreachable, policy.of_master(self.opts))
            told = hints.with_last_seen(self.opts, told)
            return Look(number, at, told, info, found, unreachable, self._disarmed())
        except errors.VirtError as exc:
            return Look(number, at, why=exc.text)
        except Exception:
            log.exception("the hypervisors cannot be asked for pages")
            return Look(number, at, why="the master's log says why the hypervisors are not asked")

    def _listen(self) -> None:
        """Reads the master's events while somebody watches."""
        while True:
            with self._change:
                while not self._watching:
                    self._change.wait()
            try:
                self._read()
            except Exception:
                log.exception("the master's events cannot be read for pages")
                time.sleep(_AGAIN_S)

    def _read(self) -> None:
        with salt.utils.event.get_event(
            "master", sock_dir=self.opts["sock_dir"], opts=self.opts, listen=True
        ) as bus:
            while self._watching:
                found = bus.get_event(wait=_EVENT_WAIT_S, full=True, auto_reconnect=True)
                if found and isinstance(found.get("data"), dict):
                    self.heard(str(found["tag"]), found["data"])

    def heard(self, tag: str, data: dict[str, Any]) -> None:
        """An event of the master."""
        told = news.read(tag, data)
        if told is None:
            return
        if told.changes:
            self.soon()
        if told.is_told:
            with self._change:
                watching = list(self._watching)
            for one in watching:
                one.heard(told)

    def told_to(self, user: str | None, told: news.News) -> dict[str, Any] | None:
        """What the user is told of an event: of a guest that he sees or is having made, of what he
        has begun; None: nothing. By the rights that he had at the last look: to ask Salt's
        authentication for his groups takes longer than events are apart. Raises Denied,
        BadAnswer."""
        if told.user is not None:
            return told.data if user is None or told.user == user else None
        seen = self.seen(user)
        if seen.is_all:
            return told.data
        if told.about in seen.guests or allowed.makes(self.opts, user, told.about):
            found: dict[str, Any] = allowed.without_others(told.data)
            return found
        return None


def _shown_of(about: Any) -> dict[str, Any]:
    """What a page shows of what virt.query has of one host."""
    if not isinstance(about, dict):
        return {}
    found = _without(about, _UNSHOWN)
    guests = about.get("vm_info")
    if isinstance(guests, dict):
        found["vm_info"] = {
            name: _without(one, _UNSHOWN_OF_GUEST) for name, one in guests.items()
            if isinstance(one, dict)
        }  # fmt: skip
    return found


def _without(data: dict[str, Any], words: tuple[str, ...]) -> dict[str, Any]:
    return {word: value for word, value in data.items() if word not in words}
