"""All connections of an agent, or of a master, on one thread of their own.

    talk = Talk(credentials, on_frame)
    talk.listen("0.0.0.0", 16516, members=("hv2", "hv3"), masters=("master",))   # an agent
    talk.call("hv2", "10.0.0.2", 16516)                                          # both
    talk.tell("hv2", frames.frame(frames.BEAT, beat.to_answer()))
    talk.close()

``on_frame(name, kind, body)`` is called on that thread: it hands over, and does nothing that
takes time. What it raises ends that connection with a line in the log.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import errno
import functools
import logging
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from saltvirt import errors, plain
from saltvirt.hatalk import frames, tls
from saltvirt.hatalk.line import Line, OnFrame, Outbox, Pace, ended, words

log = logging.getLogger(__name__)

PORT = 16516
_FIRST_RETRY_S = 0.2
# connections that have not proven who they are: of one address, and of all
_UNPROVEN_EACH, _UNPROVEN = 8, 256
_CLOSE_S = 5
# one that hurries waits for more only such a part of the time
_HURRY = 5


class Talk:
    """What one process says and hears. Its methods may be called by any thread."""

    def __init__(self, own: tls.Credentials, on_frame: OnFrame, pace: Pace | None = None) -> None:
        self._own, self._on_frame, self._pace = own, on_frame, pace or Pace()
        self._gathering = _Gathering(self._pace.gather_s)
        self._loop = asyncio.SelectorEventLoop(self._gathering)
        self._called: dict[str, _Called] = {}
        self._accepted: dict[str, Line] = {}
        self._heard: dict[str, float] = {}
        self._told: collections.deque[tuple[str, frames.Frame]] = collections.deque()
        self._is_woken = False
        self._listener: socket.socket | None = None
        self._works: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="talk", daemon=True)
        self._thread.start()

    def listen(
        self, address: str, port: int, members: Collection[str], masters: Collection[str]
    ) -> int:
        """Takes connections of those names, and of nobody else. Returns the port.

        address: empty for all that the host has. Raises ConnectionFailed when it cannot listen.
        """
        may_say = {
            **dict.fromkeys(members, frames.OF_MEMBERS),
            **dict.fromkeys(masters, frames.OF_MASTERS),
        }
        both = not address and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in address else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (address, port), family=family, backlog=128, dualstack_ipv6=both
            )
        except OSError as exc:
            raise errors.ConnectionFailed(
                f"cannot listen on {address}:{port}: {exc.strerror}"
            ) from exc
        self._listener.setblocking(False)
        self._begin(_accept(self, self._listener, may_say))
        return int(self._listener.getsockname()[1])

    def call(self, name: str, address: str, port: int = PORT) -> None:
        """Keeps a connection to the agent of that name, from now on. Once of each name."""
        self._run(self._call, name, address, port)

    def tell(self, name: str, frame: frames.Frame) -> None:
        """Says it to the one of that name, on the connection to it or the one that it made. To one
        that ``call`` was told of it is said later, if there is none: the newest of a slot."""
        self._told.append((name, frame))
        if not self._is_woken:  # once for all that is said at one time
            self._is_woken = True
            self._run(self._tell_all)

    def hurry(self, for_s: float) -> None:
        """For so long it waits less for more when something has come: something happens."""
        self._gathering.hurries_until_s = time.monotonic() + for_s

    def heard_s(self, name: str) -> float | None:
        """For how long nothing was heard of it, on any connection; None: never."""
        at_s = self._heard.get(name)
        return None if at_s is None else time.monotonic() - at_s

    def close(self) -> None:
        """Ends all connections and the thread."""
        if not self._loop.is_closed():
            try:
                asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_CLOSE_S)
            except concurrent.futures.TimeoutError:
                log.warning("connections that do not end within %s s are left", _CLOSE_S)
            self._run(self._loop.stop)
            self._thread.join(_CLOSE_S)
            self._loop.close()
        if self._listener is not None:
            self._listener.close()

    async def _end(self) -> None:
        await ended(asyncio.all_tasks() - {asyncio.current_task()})

    # on its thread

    def _run(self, function: Callable[..., object], *words_: object) -> None:
        with contextlib.suppress(RuntimeError):  # it was closed
            self._loop.call_soon_threadsafe(function, *words_)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._run(self.begin, work)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Work of its own, by its thread."""
        task = self._loop.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)

    def _call(self, name: str, address: str, port: int) -> None:
        called = self._called[name] = _Called(name, (address, port), Outbox())
        called.task = self._loop.create_task(called.keep(self))

    def _tell_all(self) -> None:
        self._is_woken = False
        with contextlib.suppress(IndexError):
            while True:
                self._tell(*self._told.popleft())

    def _tell(self, name: str, frame: frames.Frame) -> None:
        called = self._called.get(name)
        line = called.line if called else self._accepted.get(name)
        outbox = called.outbox if called else line.outbox if line else None
        if outbox is not None:
            outbox.put(frame)
        if line is not None:
            line.say()

    def lives(self, name: str) -> None:
        """Something was heard of it."""
        self._heard[name] = time.monotonic()

    async def serve(self, found: socket.socket, may_say: dict[str, frozenset[str]]) -> Line:
        """A connection that was made to us, when the other side has proven who it is. It takes the
        place of an older one of the same name."""
        try:
            context = tls.to_listen(self._own)
        except errors.VirtError:
            found.close()
            raise

        def known(name: str) -> frozenset[str]:
            if name not in may_say:
                who = name or "a nameless one"
                raise frames.BadFrame(f"{who} is neither a member nor a master")
            return may_say[name]

        line = Line(known, self._pace, Outbox(), self._on_frame, self.lives)
        await self._loop.connect_accepted_socket(
            lambda: line, found, ssl=context, ssl_handshake_timeout=self._pace.silent_s
        )
        if line.name in may_say:
            older = self._accepted.get(line.name)
            self._accepted[line.name] = line
            if older is not None:
                older.close()
        return line

    def served(self, line: Line) -> None:
        """That connection has ended."""
        if self._accepted.get(line.name) is line:
            del self._accepted[line.name]

    async def connected(
        self, name: str, where: tuple[str, int], outbox: Outbox, on_life: Callable[[], None]
    ) -> Line:
        """A connection that we made, to the one of that name and no other."""

        def expected(found: str) -> frozenset[str]:
            if found != name:
                raise frames.BadFrame(f"there is {found or 'a nameless one'}")
            return frames.OF_MEMBERS

        def alive(_: str) -> None:
            self.lives(name)
            on_life()

        line = Line(expected, self._pace, outbox, self._on_frame, alive)
        context = tls.to_connect(self._own)
        found = await asyncio.wait_for(self._reached(where), self._pace.connect_s)
        await self._loop.create_connection(
            lambda: line,
            sock=found,
            ssl=context,
            server_hostname=where[0],
            ssl_handshake_timeout=self._pace.silent_s,
        )
        return line

    async def _reached(self, where: tuple[str, int]) -> socket.socket:
        """A connection without TLS yet, to the first of its addresses that answers."""
        last: OSError | None = None
        for family, kind, proto, _, address in await self._loop.getaddrinfo(
            *where, type=socket.SOCK_STREAM
        ):
            found = socket.socket(family, kind, proto)
            try:
                found.setblocking(False)
                await self._loop.sock_connect(found, address)
                return found
            except OSError as exc:
                last = exc
                found.close()
            except BaseException:
                found.close()
                raise
        raise last or OSError(errno.EHOSTUNREACH, "no address")

    @property
    def pace(self) -> Pace:
        """How patient it is."""
        return self._pace


class _Gathering(selectors.DefaultSelector):
    """Waits a little for more when something has come; not when another thread has something to
    say. What is registered first is the loop's own, by which it is woken."""

    def __init__(self, gather_s: float) -> None:
        super().__init__()
        self.hurries_until_s = float("-inf")
        self._gather_s = gather_s
        self._woken = select.poll()
        self._own_fd = -1

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Looks at it from now on."""
        key = super().register(fileobj, events, data)
        if self._own_fd < 0:
            self._own_fd = key.fd
            self._woken.register(key.fd, select.POLLIN)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What has come."""
        found = super().select(timeout)
        if not found or not self._gather_s or any(key.fd == self._own_fd for key, _ in found):
            return found
        hurries = time.monotonic() < self.hurries_until_s
        self._woken.poll(1000 * self._gather_s / (_HURRY if hurries else 1))
        return super().select(0)


class _Called:
    """A connection that is made again whenever it ends."""

    def __init__(self, name: str, where: tuple[str, int], outbox: Outbox) -> None:
        self.name, self.where, self.outbox = name, where, outbox
        self.task: asyncio.Task[None] | None = None
        self.line: Line | None = None
        self._said = ""

    async def keep(self, talk: Talk) -> None:
        pause_s = _FIRST_RETRY_S
        while True:
            began_s = time.monotonic()
            try:
                self.line = await talk.connected(self.name, self.where, self.outbox, self._alive)
                await self.line.run()
            except Exception as exc:  # whatever it was: it is tried again
                self._lost(exc)
            long = time.monotonic() - began_s > talk.pace.silent_s
            pause_s = _FIRST_RETRY_S if long else min(2 * pause_s, talk.pace.beat_s)
            await asyncio.sleep(pause_s)

    def _alive(self) -> None:
        self._say("connected")

    def _lost(self, exc: Exception) -> None:
        self._say(f"no connection: {words(exc)}")

    def _say(self, text: str) -> None:
        """Once, not at each try."""
        if text != self._said:
            log.info("%s at %s:%s: %s", self.name, *self.where, plain.line(text))
        self._said = text


async def _accept(talk: Talk, listener: socket.socket, may_say: dict[str, frozenset[str]]) -> None:
    """Takes connections until it is cancelled. A stranger costs neither time nor places."""
    loop = asyncio.get_running_loop()
    unproven: collections.Counter[str] = collections.Counter()
    complained = _Complained()
    while True:
        try:
            found, address = await loop.sock_accept(listener)
        except OSError as exc:
            complained.say("the listening port", words(exc))
            await asyncio.sleep(_FIRST_RETRY_S)
            continue
        who = str(address[0])
        if unproven[who] >= _UNPROVEN_EACH or unproven.total() >= _UNPROVEN:
            found.close()
            continue
        unproven[who] += 1
        proven = functools.partial(_forget, unproven, who)
        talk.begin(_serve(talk, found, may_say, who, proven, complained))


def _forget(unproven: collections.Counter[str], who: str) -> None:
    unproven[who] -= 1
    if unproven[who] <= 0:
        del unproven[who]


async def _serve(
    talk: Talk,
    found: socket.socket,
    may_say: dict[str, frozenset[str]],
    who: str,
    proven: Callable[[], None],
    complained: _Complained,
) -> None:
    try:
        try:
            line = await talk.serve(found, may_say)
        finally:
            proven()
        try:
            await line.run()
        finally:
            talk.served(line)
    except Exception as exc:  # one connection: the others go on
        complained.say(who, words(exc))


class _Complained:
    """Who connects and is turned away again and again fills no log."""

    MOST = 1000

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def say(self, who: str, text: str) -> None:
        """Logs a trouble of somebody, if it is another than his last."""
        if self._said.get(who) == text:
            return
        if len(self._said) >= self.MOST:
            self._said.clear()
        self._said[who] = text
        log.info("connection from %s: %s", who, plain.line(text))
