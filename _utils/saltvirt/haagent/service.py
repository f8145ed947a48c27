"""The service: each beat it steps, writes down, tells and acts, as ``agent.AgentStep`` has it."""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

from saltvirt import errors, plain
from saltvirt.ha import agent, agent_disk, agent_known, agent_view, disks, safety
from saltvirt.ha.agent_view import AgentAction, AgentState, AgentView, Kept
from saltvirt.ha.facts import ArrivedBeat, Beat
from saltvirt.ha.registry import IGNORED
from saltvirt.haagent import definitions, ending, pools
from saltvirt.haagent.copies import Copies
from saltvirt.haagent.definitions import Definition, Definitions
from saltvirt.haagent.feeder import Feeder
from saltvirt.haagent.fencing import Fencing
from saltvirt.haagent.guests import Guests, Where
from saltvirt.haagent.inbox import Asked, Inbox
from saltvirt.haagent.moves import Moves
from saltvirt.haagent.pool_keys import PoolKeys
from saltvirt.haagent.settings import AgentSettings
from saltvirt.haagent.shelf import FOLDER, Shelf
from saltvirt.haagent.store import Store
from saltvirt.haagent.watchdog import Watchdog
from saltvirt.haagent.writer import Writer
from saltvirt.hafence.setting import FenceTold
from saltvirt.hatalk import frames
from saltvirt.hatalk.line import Pace
from saltvirt.hatalk.talk import Talk
from saltvirt.host.domain import guest_lock
from saltvirt.host.node import boot

log = logging.getLogger(__name__)

# what it is asked to do, by a signal
STOP, AGAIN = "stop", "again"
_ASK_AGAIN_S = 5
# where libvirt's daemon of that URI has the definitions of guests
_SAVED = {"qemu:///system": "/etc/libvirt/qemu"}
# a beat waits so long for the disk, and the watchdog is fed so often, in beats
_DISK_BEATS, _FEED_BEATS = 0.25, 0.5


def boottime() -> float:
    """The clock of this boot. It counts while the host sleeps, too, and nobody sets it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Service:
    """One agent. clock: see ``boottime``. trial: why what is on the disk now cannot take over, or
    nothing. program: the digest of the one that runs."""

    def __init__(
        self,
        settings: AgentSettings,
        clock: Callable[[], float] = boottime,
        trial: Callable[[], str] = str,
        program: str = "",
    ) -> None:
        self.settings, self.policy, self.clock = settings, settings.patience, clock
        self._trial, self.program, self._tries = trial, program, threading.Lock()
        self._settings_digest = settings.digest
        self.wake = threading.Event()
        self.asked, self._asked_s = "", 0.0
        self.ended: str | None = None
        self.store = Store(settings.state, settings.run, boot.current())
        self.store.lock()
        self.state, leased_s = self.store.begin(settings.host, clock())
        self.disk = Writer(
            self.state.kept, self._keep, _DISK_BEATS * self.policy.beat_s,
            self.say,
        )  # fmt: skip
        self.watchdog = Watchdog(settings.watchdog, self.policy.watchdog_s, self.state.watchdog_s)
        self.feeder = Feeder(self.watchdog, clock, _FEED_BEATS * self.policy.beat_s)
        # it feeds it while it holds the lease, whether that was before its restart or after
        known = self.state.believed or self.store.opened
        feed_lease_s = agent_known.feed_lease_s(self.state, self.policy)
        if known and safety.lease_holds(leased_s, clock(), feed_lease_s):
            self.watchdog.arm()
            self.feeder.until((leased_s or 0) + feed_lease_s)
        self.copies = Copies(f"{settings.run}/guests.json", self.store.boot_id, clock())
        locks = f"{guest_lock.FOLDER}/guests"
        saved = _SAVED.get(settings.uri, "")
        where = Where(settings.uri, locks, self.policy.shutdown_wait_s, self.policy.beat_s, saved)
        kept = Definitions(f"{settings.state}/definitions", self.known())
        self.guests = Guests(where, self.copies, kept, clock, self.policy.stable_s)
        self.guests.on_definition = self.tell_definition
        self.moves = Moves(
            self.guests, clock, self.ask, lambda host: f"qemu+tls://{host}/system", self.tell_stayed
        )
        self.inbox = Inbox(settings.masters, clock, self.wake.set)
        self.fencing = Fencing(
            settings.host, lambda: self.inbox.calls, clock, self.policy.suspect_s, self.tell_fenced
        )
        self.keys = PoolKeys(f"{settings.run}/keys.json")
        self.pools = [
            pools.Pool(
                folder, pools.argv(folder, settings.host), settings.members, clock, self.keys.is_of
            )
            for folder in settings.pools
        ]
        self.shelves = [
            Shelf(folder, pools.argv(folder, settings.host, FOLDER), clock)
            for folder in settings.pools
        ]
        self._definitions: dict[str, Definition] = {}
        beat_s, suspect_s = self.policy.beat_s, self.policy.suspect_s
        pace = Pace(beat_s, suspect_s / 2, 2 * suspect_s, min(2, suspect_s / 2))
        self.talk = Talk(settings.credentials, self.inbox.on_frame, pace)
        self._listens = False
        self._last_acts: set[AgentAction] = set()
        self._last_beat: Beat | None = None
        self._masters_heard: set[str] = set()
        self._said = ""

    # its life

    def run(self) -> str:
        """Until it has ended: STOP, or AGAIN when it is to be run anew."""
        for name in self.settings.members:
            if name != self.settings.host:
                self.talk.call(name, *self.settings.where(name))
        self._give_names()
        self.feeder.begin()
        self.guests.begin()
        next_s = self.clock()
        while self.ended is None:
            self.beat()
            now_s = self.clock()
            next_s = max(next_s + self.policy.beat_s, now_s)
            while self.ended is None and self.clock() < next_s:
                self.wake.wait(max(0.01, next_s - self.clock()))
                self.wake.clear()
                self.answer()
        return self.ended

    def beat(self) -> None:
        """One beat; whatever goes wrong, the next one follows."""
        try:
            self.listen()
            if not self.copies.is_known:
                self.say("waits for libvirt: it may have guests")
                return
            self.turn(self.clock())
        except Exception as exc:  # an agent that ends is a host that is lost
            log.exception("a beat failed: %s", exc)

    def close(self) -> None:
        """Ends what it began. The watchdog stays as it is, but for one of which nobody knows that
        it is armed; it is fed to the last: a disk that is slow, or storage that hangs, delays the
        end, and whoever is run next feeds it a while later."""
        self.disk.end()
        if self.ended == AGAIN and not self.state.believed:
            self.watchdog.rest()
            self.store.opened = False
            with contextlib.suppress(OSError):
                self.store.remember(self.state)
        self.guests.end()
        for pool in self.pools:
            pool.end()
        for shelf in self.shelves:
            shelf.end()
        with contextlib.suppress(Exception):
            self.talk.close()
        self.feeder.end()
        self.store.unlock()

    def on_signal(self, number: int, _frame: object) -> None:
        """SIGTERM: it is to end in order. SIGHUP: it is to run anew, as it is."""
        if number == signal.SIGHUP:
            threading.Thread(target=self._renew, name="trial", daemon=True).start()
        else:
            self.asked = self.asked or STOP
        self.wake.set()

    def _renew(self) -> None:
        """Runs anew by what is on the disk, if that can; else it goes on as it is."""
        if not self._tries.acquire(blocking=False):
            return
        try:
            why = self._trial()
        finally:
            self._tries.release()
        if why:
            log.error("goes on by the old program and settings, for the new ones fail: %s", why)
        else:
            self.ended = self.ended or AGAIN
            self.wake.set()

    def listen(self) -> None:
        """Listens, as soon as it can."""
        if self._listens:
            return
        host, members = self.settings.host, set(self.settings.members)
        try:
            port = self.settings.where(host)[1]
            self.talk.listen("", port, members - {host}, self.settings.masters)
            self._listens = True
        except errors.ConnectionFailed as exc:
            self.say(str(exc))

    def _keep(self, kept: Kept) -> None:
        self.store.keep(kept)

    def say(self, text: str) -> None:
        """Logs a trouble once, not at each beat."""
        if text != self._said:
            log.warning("%s", text)
        self._said = text

    # a step

    def turn(self, now_s: float) -> None:
        """Steps, feeds, tells, acts. What it says is written down before."""
        step = self.written(self.view(now_s), now_s)
        if step is None:
            return
        self.state = step.state
        self._feed(step)
        self._give_names()
        self.guests.health.agents = self.agents()
        self.tell(step.beat)
        self.shelve()
        acts = set(step.actions)
        for action in step.actions:
            if action.kind != agent_view.FEED:
                self.act(action, action not in self._last_acts)
            if self.ended is not None:
                break
        self._last_acts = acts

    def _feed(self, step: agent.AgentStep) -> None:
        """While the lease of this step holds, if it says so; by what others may count on."""
        feeds = any(one.kind == agent_view.FEED for one in step.actions)
        lease_s = agent_known.feed_lease_s(step.state, self.policy)
        self.feeder.until((step.state.lease_from_s or 0) + lease_s if feeds else None)
        if step.state.watchdog_s is not None:
            self.watchdog.goes_by(step.state.watchdog_s)

    def written(self, view: AgentView, now_s: float) -> agent.AgentStep | None:
        """A step of which all is written down that must be."""
        step = agent_disk.turn(self.state, view, now_s, self.policy, self.disk)
        try:
            self.store.opened = self.watchdog.works
            self.store.remember(step.state)
        except OSError as exc:
            self.say(f"cannot write {exc.filename or self.settings.run}: {exc.strerror}")
            if self._last_beat is None:
                return None
            return agent_disk.still(self.state, self._last_beat, view, now_s, self.policy)
        self._last_beat = step.beat
        return step

    def view(self, now_s: float) -> AgentView:
        """What it sees now."""
        beats = {k: v for k, v in self.inbox.beats.items() if k in self.settings.members}
        self.keys.hear(beats)
        return AgentView(
            beats=beats,
            stored=self.stored(now_s),
            calls=self.inbox.believable(self.copies.looked_s, self.known()),
            guests=self.guests.health.over(self.copies.there(self.names())),
            watchdog=self.watchdog.is_there,
            works=self.watchdog.works,
            watchdog_s=self.watchdog.timeout_s,
            storage_silent_s=max((pool.silent_s() for pool in self.pools), default=None),
            pools_silent=self.silent(),
            asked=self.why_asked(now_s),
            leases=self.copies.leases(),
            program=self.program,
            settings=self._settings_digest,
            definitions=self.guests.kept.names,
        )

    def silent(self) -> dict[str, float]:
        """Pools that could not be written to for long."""
        found = {pool.folder: round(pool.silent_s(), 1) for pool in self.pools}
        least_s = self.policy.suspect_s / 2
        return {folder: silent_s for folder, silent_s in found.items() if silent_s >= least_s}

    def stored(self, now_s: float) -> dict[str, ArrivedBeat]:
        """Beats of peers on pools that were read not long ago, the newest of each."""
        found: dict[str, ArrivedBeat] = {}
        for pool in self.pools:
            if pool.read_s is None or now_s - pool.read_s > self.policy.suspect_s:
                continue
            for name, beat in pool.beats.items():
                old = found.get(name)
                if old is None or (old.beat.boot, old.beat.seq) < (beat.boot, beat.seq):
                    found[name] = ArrivedBeat(beat, pool.read_s)
        return {name: one for name, one in found.items() if name != self.settings.host}

    def known(self) -> set[str]:
        """Guests that it keeps a record of already."""
        return {*self.state.kept.registry.guests, *self.state.kept.pending.guests}

    def _give_names(self) -> None:
        managed = self.managed()
        for name in self.guests.managed - managed:
            self.guests.leave(name)
        self.guests.names, self.guests.managed = self.names(), managed
        self.guests.own = self.own()

    def managed(self) -> frozenset[str]:
        """Guests that nobody but the manager starts: none of those that are left to a person."""
        return frozenset(
            name
            for registry in (self.state.kept.registry, self.state.kept.pending)
            for name, one in registry.guests.items()
            if one.state != IGNORED
        )

    def own(self) -> frozenset[str]:
        """Guests that are this host's in this boot."""
        here, guests = (self.state.host, self.state.boot), self.state.kept.registry.guests
        return frozenset(name for name, one in guests.items() if (one.host, one.boot) == here)

    def names(self) -> frozenset[str]:
        """Guests of high availability, those of a registry that is about to be kept among them."""
        names = self.known()
        for arrived in self.inbox.calls.values():
            names |= set(arrived.call.registry.guests) if arrived.call.registry else set()
        return frozenset(names)

    def agents(self) -> dict[str, int]:
        """Guests here whose agents are to be asked, and for how long each may be silent."""
        records = self.state.kept.registry.guests
        return {
            name: one.agent_silent_s
            for name, one in records.items()
            if one.agent_silent_s and one.host == self.settings.host
        }

    def why_asked(self, now_s: float) -> str:
        """What its machine asks of it; it may begin to shut down while the agent ends."""
        if self.asked and now_s - self._asked_s >= _ASK_AGAIN_S:
            found = ending.why()
            self.asked = self.asked if found == agent_view.STOP else found
            self._asked_s = now_s
        return self.asked

    # what it says

    def tell(self, beat: Beat) -> None:
        """To masters, to peers, to pools: to each what it needs of it."""
        kept = self.guests.kept.digest(self.state.kept.registry.guests)
        whole = frames.frame(frames.BEAT, replace(beat.to_master(), definitions=kept).to_answer())
        for name in self.settings.masters:
            self.talk.tell(name, whole)
        told = beat.to_peers()
        data = replace(told, pool_key=self.keys.own).to_answer()
        acks = data["acks"]
        for name in self.settings.members:
            if name != self.settings.host:
                own = {name: acks[name]} if name in acks else {}
                self.talk.tell(name, frames.frame(frames.BEAT, {**data, "acks": own}))
        sealed = self.keys.seal(told) if self.pools else b""
        for pool in self.pools:
            pool.write(sealed)

    def tell_definition(self, found: Definition) -> None:
        """libvirt's definition of a guest has changed."""
        self._definitions[found.name] = found
        frame = frames.frame(frames.DEFINITION, found.body())
        for name in self.settings.masters:
            self.talk.tell(name, frame)

    def shelve(self) -> None:
        """Definitions of guests that are this host's go beside the disks, too."""
        guests = self.state.kept.registry.guests
        for name in set(self._definitions) - self.guests.names:
            self._definitions.pop(name, None)
        mine = self.own()
        own = {name: one for name, one in self._definitions.copy().items() if name in mine}
        for shelf in self.shelves:
            shelf.keep(own, guests, self.copies.is_defined)

    def tell_fenced(self, master: str, told: FenceTold) -> None:
        """How a fence ended that a master has had run here."""
        self.talk.tell(master, frames.frame(frames.FENCED, told.to_answer()))

    def ask(self, host: str, guest: str, epoch: int) -> None:
        """Asks a peer whether a guest may come in."""
        self.talk.tell(host, frames.frame(frames.INCOMING, {"guest": guest, "epoch": epoch}))

    def journal(self, action: AgentAction) -> None:
        """For the log, and the masters' journal."""
        words = " ".join(one for one in (action.kind, action.guest, action.host) if one)
        log.info("%s: %s", words, action.why)
        self._tell_journal(words, action.guest, action.why)

    def tell_stayed(self, guest: str, host: str, why: str) -> None:
        """A guest that did not go to a host: libvirt's words are for a person on the master."""
        self._tell_journal(f"no migration of {guest} to {host}", guest, why)

    def _tell_journal(self, action: str, guest: str, why: str) -> None:
        body = {"at": time.time(), "action": action, "guest": guest, "why": why}
        for name in self.settings.masters:
            self.talk.tell(name, frames.frame(frames.JOURNAL, body))

    # what it is told beside beats and calls

    def answer(self) -> None:
        """All that waits; whatever goes wrong with one, the next one follows."""
        self.hear_masters()
        with contextlib.suppress(queue.Empty):
            while True:
                asked = self.inbox.asked.get_nowait()
                try:
                    self._answer(asked)
                except (errors.VirtError, OSError) as exc:
                    log.warning("%s of %s: %s", asked.kind, asked.sender, plain.line(exc))
                except Exception as exc:  # as in a beat
                    log.exception("%s of %s failed: %s", asked.kind, asked.sender, exc)

    def hear_masters(self) -> None:
        """One that is new, or back, is told all definitions."""
        limit_s = 2 * self.policy.suspect_s
        heard = {
            name
            for name in self.settings.masters
            if (silent_s := self.talk.heard_s(name)) is not None and silent_s < limit_s
        }
        if heard - self._masters_heard:
            self.guests.tell_again()
        self._masters_heard = heard

    def _answer(self, asked: Asked) -> None:
        body = asked.body
        if asked.kind == frames.DEFINITION:
            self.guests.kept.keep(definitions.parse(_text(body, "name"), _text(body, "xml")))
            return
        if asked.kind == frames.FENCE:
            self.fencing.asked(asked.sender, body)
            return
        if asked.kind not in (frames.INCOMING, frames.INCOMING_ANSWER):
            return
        guest, epoch = _text(body, "guest"), body.get("epoch")
        if not isinstance(epoch, int):
            raise errors.BadAnswer("no epoch")
        if asked.kind == frames.INCOMING_ANSWER:
            self.moves.answered(asked.sender, guest, epoch, body.get("yes") is True)
            return
        told = {"guest": guest, "epoch": epoch, "yes": self.consents(guest, epoch)}
        self.talk.tell(asked.sender, frames.frame(frames.INCOMING_ANSWER, told))

    def consents(self, guest: str, epoch: int) -> bool:
        """Whether a guest may come in, and nothing of it is here."""
        now_s = self.clock()
        silent = {pool.folder for pool in self.pools if pool.silent_s() > self.policy.suspect_s}
        kept = self.guests.kept.get(guest)
        on = disks.pools(ElementTree.fromstring(kept.xml), silent) if kept else None
        lost = silent if on is None else on
        may = agent_known.consents(self.state, guest, epoch, now_s, self.policy)
        return may and not lost and self.copies.is_known and self.moves.expect(guest, epoch)

    # what it does

    def act(self, action: AgentAction, is_new: bool) -> None:
        """One action. Nothing here waits for libvirt or storage."""
        if is_new:
            self.journal(action)
        do: dict[str, Callable[[], None]] = {
            agent_view.FEED: self.watchdog.feed,
            agent_view.ARM: self.arm,
            agent_view.DISARM: self.watchdog.rest,
            agent_view.START: lambda: self.guests.start(action.guest, action.epoch),
            agent_view.ADOPT: lambda: self.guests.adopt(action.guest, action.epoch),
            agent_view.KILL: lambda: self.guests.kill(action.guest),
            agent_view.DROP: lambda: self.guests.drop(action.guest),
            agent_view.STOP_GUEST: lambda: self.guests.shut_down(action.guest),
            agent_view.SEND_AWAY: lambda: self.moves.send(action.guest, action.epoch, action.host),
            agent_view.LEASE: lambda: self.guests.lease(action.guest, action.epoch),
            agent_view.EXIT: lambda: self.end(STOP),
            agent_view.POWER_OFF: lambda: self.end(STOP),
            agent_view.RENEW: self.renew,
        }
        do[action.kind]()

    def arm(self) -> None:
        """Arms the watchdog. That is written down before: the agent may be killed right then, and
        the next one is to feed it."""
        self.store.opened = True
        try:
            self.store.remember(self.state)
        except OSError as exc:
            self.say(f"the watchdog is not armed: cannot write {exc.filename}: {exc.strerror}")
            return
        self.watchdog.arm()

    def end(self, how: str) -> None:
        """It has ended."""
        self.watchdog.rest()
        self.ended = how

    def renew(self) -> None:
        """As if the host had booted: none of its guests runs."""
        state: AgentState = self.state.renewed()
        self.store.renew(state.boot)
        self.copies.clear()
        self.state = state


def _text(body: dict[str, object], key: str) -> str:
    found = body.get(key)
    if not isinstance(found, str) or not found:
        raise errors.BadAnswer(f"no {key}")
    return found
