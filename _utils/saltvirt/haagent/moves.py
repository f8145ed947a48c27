"""Guests that migrate live, away from here and to here: the target's agent is asked first, then
libvirt does it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.ha.facts import ALIVE, INCOMING, RUNNING
from saltvirt.haagent.copies import Copies, Copy
from saltvirt.haagent.guests import Guests
from saltvirt.host.connection import libvirt
from saltvirt.host.migration import live

log = logging.getLogger(__name__)

# so long the target is asked; so long its word holds until libvirt is told; so long libvirt may
# take until memory goes over: less than the target waits for it (copies.COMING_S)
PATIENCE_S, WORD_S, BEGIN_S = 15, 5, 15
_LOOK_S = 1
FLAGS = ("LIVE", "PEER2PEER", "PERSIST_DEST", "UNDEFINE_SOURCE", "TLS", "AUTO_CONVERGE",
         "ABORT_ON_ERROR")  # fmt: skip


@dataclass
class Move:
    """A guest on its way. asked_s: when the target was asked last."""

    epoch: int
    host: str
    began_s: float
    asked_s: float = 0
    going: bool = False


class Moves:
    """ask: called with the target's name, the guest's and the epoch. uri: of a host's libvirt.
    tell: called with the guest's name, the target's and the reason when it did not go."""

    def __init__(
        self,
        guests: Guests,
        clock: Callable[[], float],
        ask: Callable[[str, str, int], None],
        uri: Callable[[str], str],
        tell: Callable[[str, str, str], None],
    ) -> None:
        self._guests, self._clock, self._ask, self._uri = guests, clock, ask, uri
        self._tell = tell
        self._moves: dict[str, Move] = {}

    @property
    def _copies(self) -> Copies:
        return self._guests.copies

    # from here

    def send(self, name: str, epoch: int, host: str) -> None:
        """Said again each beat, until the guest is gone or did not go."""
        now_s = self._clock()
        move = self._moves.get(name)
        if move is None or (move.epoch, move.host) != (epoch, host):
            move = self._moves[name] = Move(epoch, host, now_s)
        if move.going:
            return
        if now_s - move.began_s > PATIENCE_S:
            self._failed(name, move, "its target does not take it")
            return
        move.asked_s = now_s
        self._ask(host, name, epoch)

    def answered(self, host: str, name: str, epoch: int, yes: bool) -> None:
        """What the target said."""
        move = self._moves.get(name)
        if move is None or (move.epoch, move.host) != (epoch, host) or move.going or not yes:
            return
        if self._clock() - move.asked_s < WORD_S:
            move.going = self._guests.do("migrate", name, self._go, move)

    def _go(self, name: str, move: Move) -> None:
        try:
            dom = self._guests.domain(name)
            if dom is None or self._clock() - move.asked_s > WORD_S:
                self._failed(name, move, "it was too late")
                return
            if _is_under_way(dom):
                self._follow(name, dom, move)
                return
            done = threading.Event()
            watch = threading.Thread(target=_watch, args=(dom, done), daemon=True)
            watch.start()
            try:
                dom.migrateToURI3(self._uri(move.host), {}, live.flags(FLAGS))
            finally:
                done.set()
            self._went(name, move)
        except (libvirt.libvirtError, errors.VirtError) as exc:
            self._failed(name, move, str(exc))

    def _follow(self, name: str, dom: libvirt.virDomain, move: Move) -> None:
        """A migration that the agent before this one began: libvirt goes on with it."""
        log.info("guest %s is on its way to %s already", name, move.host)
        with contextlib.suppress(libvirt.libvirtError):  # it is no longer here
            while _is_under_way(dom):
                time.sleep(_LOOK_S)
        if self._guests.domain(name) is None:
            self._went(name, move)
        else:
            self._failed(name, move, "its migration, which was under way already, ended here")

    def _went(self, name: str, move: Move) -> None:
        log.info("guest %s has gone to %s, epoch %s", name, move.host, move.epoch)
        self._moves.pop(name, None)
        self._copies.drop(name)

    def _failed(self, name: str, move: Move, why: str) -> None:
        log.error("guest %s did not go to %s: %s", name, move.host, why)
        self._moves.pop(name, None)
        copy = self._copies.get(name)
        if copy is not None and copy.state == RUNNING:
            self._copies.change(name, copy.since_s, migrated=move.epoch)
        self._tell(name, move.host, why)

    # to here

    def expect(self, name: str, epoch: int) -> bool:
        """It may come in, as the agent's step has said: whether there is no copy already."""
        copy = self._copies.get(name)
        again = copy is not None and (copy.state, copy.epoch) == (INCOMING, epoch)
        if copy is not None and copy.state in ALIVE and not again:
            return False
        if copy is None or not copy.uuid or not again:
            self._copies.put(name, Copy(epoch, INCOMING, since_s=self._clock()))
        return True


def _is_under_way(dom: libvirt.virDomain) -> bool:
    """Whether libvirt is about to migrate it away. Raises libvirtError."""
    away = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
    try:
        stats = dom.jobStats()
        return bool(stats.get("type")) and stats.get("operation") == away
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:  # a driver without it
            return False
        raise


def _watch(dom: libvirt.virDomain, done: threading.Event) -> None:
    """Ends a migration that does not begin: its target has stopped waiting for it."""
    if done.wait(BEGIN_S):
        return
    with contextlib.suppress(libvirt.libvirtError):
        if not live.statistics(dom).get("memory_processed"):
            dom.abortJob()
