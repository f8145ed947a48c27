"""The engine of a master: gathers what is seen, has ``saltvirt.ha`` decide, does it, once a beat.

The order is what the proofs rest on: what must not be forgotten is on the disk, then the calls go
out, then fences are run. It may be killed on any line: one that starts anew reads what it kept,
asks for the lead again, and learns from a majority of the hosts what was decided.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from saltvirt import errors, plain
from saltvirt.ha import decide, lead, quorum, reserve, wished
from saltvirt.ha.facts import ArrivedBeat, Beat, Call
from saltvirt.ha.registry import Registry, Wished
from saltvirt.ha.view import (
    Decided,
    Fence,
    FenceSeen,
    GuestWanted,
    MasterKept,
    Tied,
    View,
    begun,
)
from saltvirt.hamaster import files, seen, short
from saltvirt.hamaster.config import HaConfig
from saltvirt.hamaster.definitions import Definitions
from saltvirt.hamaster.fencer import FenceEnd
from saltvirt.hamaster.inbox import Inbox
from saltvirt.hamaster.journal import Journal
from saltvirt.hamaster.leased import Leased, Pooled
from saltvirt.hamaster.outlook import sized
from saltvirt.hamaster.remote import Remote
from saltvirt.hamaster.ties import Ties
from saltvirt.hamaster.wishes import Wishes, WishStore, kept_by_hosts, parse
from saltvirt.hatalk import frames
from saltvirt.operations import held
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy

log = logging.getLogger(__name__)

TAG = "salt/virt/ha/"
# so often it is shown what is seen, when nothing happens; and one host's loss is thought through,
# and where all were and no guest has another place since
SHOW_S, LOSS_S, LOSS_AGAIN_S = 5, 5, 60
# so often it looks whether other verbs know still which guests are kept
GUARD_S = 60
_LONGEST_WHY = 300
_LAST = 50


class Talker(Protocol):
    """What carries words to the hosts."""

    def tell(self, host: str, kind: str, body: dict[str, Any]) -> None:
        """Says it, or says it later, or never: waits for nothing."""


class Fences(Protocol):
    """What runs fence agents."""

    @property
    def levels(self) -> dict[str, int]:
        """How many fences each host has."""

    @property
    def seen(self) -> dict[str, FenceSeen]:
        """How the last attempt of each host ended."""

    def begin(self, fence: Fence) -> bool:
        """Begins an attempt, and waits for nothing."""

    def ended(self) -> list[FenceEnd]:
        """Those that ended since this was last asked."""

    remote: Remote


class Room(Protocol):
    """What knows the hosts' room."""

    @property
    def hosts(self) -> dict[str, facts.Host]:
        """By name."""

    @property
    def answered_s(self) -> dict[str, float]:
        """When each host was asked, of those that answered."""


@dataclass(frozen=True)
class World:
    """All that the engine touches. bus: is told a tag and data. program: the digest of the agents'
    program, as this library has it."""

    talker: Talker
    fences: Fences
    rooms: Room
    bus: Callable[[str, dict[str, Any]], None]
    clock: Callable[[], float] = seen.boot_time
    wall: Callable[[], float] = time.time
    program: str = ""


def is_news(old: MasterKept | None, new: MasterKept) -> bool:
    """Whether it must be on the disk before the calls go out. The number of a beat need not be:
    what was last said of a host has been written when it was said first."""
    return old is None or _lasting(old) != _lasting(new)


def _lasting(kept: MasterKept) -> tuple[object, ...]:
    pledges = {name: one.lasting for name, one in kept.pledges.items()}
    return kept.term, kept.registry.stamp, pledges


class Engine:
    """opts: the master's. Raises OperationFailed for a file that cannot be read: it does not act
    then."""

    def __init__(
        self, opts: held.Opts, config: HaConfig, placement: PlacementPolicy, world: World
    ) -> None:
        self.opts, self.config, self.placement, self.world = opts, config, placement, world
        self.misplaced = ""
        self.inbox = Inbox(config.members, world.clock)
        self.store, self.journal = WishStore(opts), Journal(opts)
        self.own = self.wishes = self.store.news() or Wishes()
        self.several = len(config.masters) > 1
        # with several masters one that has no file asks for no lead before it has learned
        self.known = self.several or (self.store.path.exists() and not self.own.fresh)
        self._before: Wishes | None = None
        self._guarded: Wishes | None = None
        self._guard_s = float("-inf")
        self._parsed = Wished(), self.own
        self.definitions = Definitions(opts)
        self.kept = files.read(seen.kept(opts), MasterKept)
        self.state = begun(config.name, self.kept or MasterKept(), world.clock())
        self.remote = world.fences.remote = Remote(world.talker.tell, self.hears)
        self.problem = self.doubt = ""
        self._sized: tuple[Any, Any, Any, dict[str, GuestWanted]] = None, None, None, {}
        self._leased, self._pooled = Leased(config.leases), Pooled(config.pools)
        self._ties = Ties()
        self._tied: tuple[Any, Any, Any, dict[str, Tied]] = None, None, None, {}
        self._outlook: seen.OutlookSeen | None = None
        self._losses: dict[str, seen.LossSeen] = {}
        # what they were thought of, and which were thought of something older
        self._lost_of: object = None
        self._doubted: set[str] = set()
        self._short = short.Short(partial(self._told, "reserve"))
        self._decided: collections.deque[seen.DecisionSeen] = collections.deque(maxlen=_LAST)
        self._shown_s = self._lost_s = float("-inf")
        self._settled = False

    def run(self, stop: threading.Event) -> None:
        """Until it is stopped. What goes wrong in one beat is said, and the next one begins."""
        beat_s, clock = self.config.policy.beat_s, self.world.clock
        next_s = clock()
        while not stop.is_set():
            self.safely()
            next_s = max(next_s + beat_s, clock())
            stop.wait(max(0, next_s - clock()))

    def safely(self) -> None:
        """One beat. What it raises is the problem that others are shown."""
        try:
            self.beat()
            problem = ""
        except (errors.VirtError, OSError) as exc:
            problem = f"the engine does not act: {exc}"
        except Exception as exc:
            log.exception("the engine of high availability")
            problem = f"the engine does not act: internal error: {exc!r}"
        if problem and problem != self.problem:
            log.error("%s", problem)
        changed, self.problem = problem != self.problem, problem
        if changed or problem:
            self._show_problem()

    def _show_problem(self) -> None:
        """What cannot be seen cannot be shown either: the next beat begins all the same."""
        try:
            self._show(self.view(self.world.clock()), self.world.clock())
        except Exception as exc:
            log.warning("its problem cannot be shown: %s", plain.line(exc))

    def beat(self) -> None:
        """Gathers, decides, writes down, tells the hosts, fences: in this order."""
        now_s = self.world.clock()
        self._wishes()
        self._words()
        view = self.view(now_s)
        decision = decide.decide(view, self.state, now_s)
        kept = decision.state.kept
        if is_news(self.kept, kept):
            try:
                files.write(seen.kept(self.opts), kept)
            except (errors.VirtError, OSError):
                self._tell(self._heard(decision.call, kept), view)
                raise
            self.kept = kept
        self.state = decision.state
        self._tell(decision.call, view)
        for fence in decision.fences:
            self._fence(fence)
        for one in decision.decided:
            self._decide(one)
        self._fenced()
        was, self._settled = self._settled, lead.is_settled(self.state)
        if decision.decided or was != self._settled or now_s - self._shown_s >= SHOW_S:
            self._think(view, now_s)
            self._show(view, now_s)

    # what is seen

    def _wishes(self) -> None:
        """The last that could be read hold on."""
        try:
            news = self.store.news()
        except (errors.VirtError, OSError) as exc:
            news = None
            if not self.doubt:
                log.error("%s", exc)
            self.doubt = f"it goes by the last wishes that it could read: {exc}"
        if not self.several and not self.store.path.exists():
            self._restore()
        elif news is not None and self.store.path.exists():
            self._before = self.own if news.fresh and self.known else self._before
            self.own, self.doubt, self.known = news, "", self.several or not news.fresh
        if self.own.fresh and not self.several:
            self._join()
        self._guard()
        wishes = self._agreed() if self.several else self.own
        if wishes is not self.wishes:
            self.wishes = wishes
            self.definitions.keep_only(wishes.guests)

    def _restore(self) -> None:
        """A file that is missing is never taken for no wishes: what was last read holds, or else
        what the hosts keep, once a majority has told that."""
        registry = self.registry
        if not self.known and not self.state.ready:
            return
        if not self.known:
            self.own, self.known = kept_by_hosts(registry), True
        if self.own == Wishes():
            return
        try:
            if not self.store.restore(self.own):
                return
        except (errors.VirtError, OSError) as exc:
            self.doubt = f"{self.store.path} is missing, and cannot be made anew: {exc}"
            return
        why = f"{self.store.path} was missing: it was made anew by what was last known"
        log.error("%s", why)
        self._told("wish", self.config.name, "", "made anew", why)

    def _join(self) -> None:
        """A verb wrote the file where there was none. What was last read holds beside it, or else
        what the hosts keep, once a majority has told that; nothing is decided before."""
        if self._before is None and not self.state.ready:
            return
        try:
            before = self._before or kept_by_hosts(self.registry)
            self.own = self.store.join(before)
        except (errors.VirtError, OSError) as exc:
            self.doubt = f"{self.store.path} was lost, and cannot be completed: {exc}"
            return
        self.known, self._before = True, None
        if before.guests:
            why = f"{self.store.path} was lost: what was last known was added to it"
            log.error("%s", why)
            self._told("wish", self.config.name, "", "completed", why)

    def _guard(self) -> None:
        """Other verbs know what is kept; also when somebody has deleted that."""
        now_s = self.world.clock()
        if not self.known or (self._guarded is self.own and now_s - self._guard_s < GUARD_S):
            return
        try:
            self.store.guard(self.own)
        except (errors.VirtError, OSError) as exc:
            self.doubt = f"other verbs do not know yet which guests are kept: {exc}"
            return
        if self._guarded is not self.own:
            self.doubt = ""
        self._guarded, self._guard_s = self.own, now_s

    def _agreed(self) -> Wishes:
        """What is acted by: what the masters have agreed on, as the registry has it that a leader
        has read. Others go by their own file, which learns it."""
        agreed = self.registry.wished
        members = self.registry.members or tuple(self.config.members)
        told = [wished.agreed([one.beat for one in self.inbox.beats().values()], members)]
        if self.state.leading_s is not None and lead.is_settled(self.state):
            told.append(agreed)
        news = max(told, key=lambda one: one.stamp, default=Wished())
        later = news.stamp > self.own.wished.stamp
        if news.text and (later or self.own.offers or not self.store.path.exists()):
            try:
                self._learn(news)
            except (errors.OperationFailed, OSError) as exc:  # it is tried again
                self.doubt = f"what the masters have agreed on is not written down here yet: {exc}"
        later = self.own.wished.stamp > agreed.stamp
        if not agreed.text or not self.state.ready or later:
            return self.own
        if self._parsed[0] != agreed:
            self._parsed = agreed, parse(agreed)
        return self._parsed[1]

    def _learn(self, news: Wished) -> None:
        path = files.folder(self.opts) / f"wishes-given-up-{int(self.world.wall())}.json"
        if not self.store.learn(news, path):
            return
        why = f"another master's wishes were agreed on: what a person wanted here is in {path}"
        log.error("%s", why)
        self._told("wish", self.config.name, "", "given up", why)

    def view(self, now_s: float) -> View:
        """What is seen now."""
        wishes, rooms = self.wishes, self.world.rooms.hosts
        closed = {name for name, host in rooms.items() if host.maintenance is not None}
        return View(
            masters=self.config.masters,
            members=tuple(self.config.members),
            beats=self.inbox.beats(),
            answered_s=self.world.rooms.answered_s,
            rooms=rooms,
            guests=self._guests(rooms),
            rules=tuple(wishes.rules.values()),
            wishes=wishes.wishes,
            fence_levels=self.world.fences.levels,
            fences=self.world.fences.seen,
            confirmed=wishes.confirmed,
            maintenance=frozenset(closed),
            tied=self._all_tied(rooms),
            armed=wishes.armed,
            wished=self._wished(),
            known=self.known,
            program=self.world.program,
            pools=self._pooled.look(self.definitions.known),
            policy=self.config.policy,
            placement=self.placement,
        )

    def _wished(self) -> Wished | None:
        """What the file says."""
        if not self.several:
            return self.own.wished if self.known and self.store.path.exists() else None
        own, agreed = self.own.wished, self.registry.wished
        if not self.store.path.exists():
            return Wished()
        # one of another version may say the same in other words
        return agreed if own.stamp == agreed.stamp > (0, 0) and not self.own.offers else own

    def _guests(self, rooms: dict[str, facts.Host]) -> dict[str, GuestWanted]:
        """The guests with their sizes and leases, made anew when anything of it changed."""
        known = self.definitions.known
        made = self._sized
        if made[0] is not self.wishes or made[1] is not rooms or made[2] is not known:
            found = sized(self.wishes.sized, rooms.values())
            leased = self._leased.look(known)
            found |= {name: replace(found[name], leased=True) for name in leased & found.keys()}
            self._sized = self.wishes, rooms, known, found
        return self._sized[3]

    def _all_tied(self, rooms: dict[str, facts.Host]) -> dict[str, Tied]:
        """Guests that can run on one host alone, looked at anew when anything of it changed."""
        known, stamp = self.definitions.known, self.registry.stamp
        if self._tied[0] is not known or self._tied[1] is not rooms or self._tied[2] != stamp:
            found = self._ties.look(known.values(), self.registry, rooms)
            self._tied = known, rooms, stamp, found
        return self._tied[3]

    @property
    def registry(self) -> Registry:
        """What was decided last, kept by enough hosts or not yet."""
        return self.state.kept.registry

    def _words(self) -> None:
        """What hosts told beside their beats. It decides nothing."""
        for host, kind, body in self.inbox.words():
            try:
                if kind == frames.DEFINITION:
                    self._definition(host, body)
                elif kind == frames.JOURNAL:
                    self._deed(host, body)
                elif kind == frames.FENCED:
                    self.remote.answered(host, body)
            except (errors.VirtError, OSError) as exc:
                log.warning("%s", plain.line(exc))

    def _definition(self, host: str, body: dict[str, Any]) -> None:
        name = body.get("name")
        if not isinstance(name, str) or name not in self.wishes.guests:
            raise errors.BadAnswer(f"{host} told the definition of a guest that nobody gave")
        if not self._may_have(host, name):
            raise errors.BadAnswer(f"{host} told the definition of {name}, which lives elsewhere")
        if self.definitions.take(host, body):
            self.journal.write("definition", name, host=host)

    def _may_have(self, host: str, name: str) -> bool:
        """It may run there; or it runs nowhere, and was there last. A host that has died since has
        an older definition of it."""
        record = self.registry.guests.get(name)
        if record is None or not record.places:
            last = record.last if record else ""
            return host == (last or self.wishes.guests[name].host)
        return any(place.host == host for place in record.places)

    def _deed(self, host: str, body: dict[str, Any]) -> None:
        told = {key: str(body.get(key, ""))[:500] for key in ("action", "why")}
        self.journal.write("host", host, guest=str(body.get("guest", ""))[:300], **told)

    # what is done

    def _tell(self, call: Call, view: View) -> None:
        bodies: dict[bool, dict[str, Any]] = {}  # most hosts are told the same
        for host in self.config.members:
            arrived = view.beats.get(host)
            beat = arrived.beat if arrived else None
            spares = decide.has_registry(call, beat)
            if spares not in bodies:
                bodies[spares] = decide.spared(call, beat).to_answer()
            self.world.talker.tell(host, frames.CALL, bodies[spares])
            if arrived is None or self._is_silent(arrived, self.world.clock()):
                self.definitions.forgot(host)
                continue
            for one in self.definitions.untold(arrived.beat, self.registry.guests):
                self.world.talker.tell(host, frames.DEFINITION, one.body())

    def _heard(self, call: Call, kept: MasterKept) -> Call:
        """The call of a master whose disk takes nothing: it leads nobody, and hosts are heard still
        that have said nothing which would have to be written. A host that no other one hears would
        cut its power else."""
        known = self.kept.pledges if self.kept else {}
        acks = {
            host: ack
            for host, ack in call.acks.items()
            if host in known and known[host].lasting == kept.pledges[host].lasting
        }
        before = self.state
        return Call(call.master, before.kept.term, before.seq, False, alone=call.alone, acks=acks)

    def hears(self, host: str) -> bool:
        """Whether the host is heard now. Any thread may ask."""
        arrived = self.inbox.beats().get(host)
        return arrived is not None and not self._is_silent(arrived, self.world.clock())

    def _is_silent(self, arrived: ArrivedBeat, now_s: float) -> bool:
        return now_s - arrived.at_s >= self.config.policy.suspect_s

    def _fence(self, fence: Fence) -> None:
        began = self.world.fences.begin(fence)
        why = f"attempt {fence.attempt}, fence {fence.level + 1}"
        why += "" if began else ": it is at work still"
        self._told("fence", fence.host, "", "begun" if began else "waits", why)

    def _fenced(self) -> None:
        for end in self.world.fences.ended():
            why = f"{end.agent}, attempt {end.fence.attempt}"
            why += f": {end.outcome.words}" if end.outcome.words else ""
            self._told("fence", end.fence.host, "begun", end.outcome.state, why)

    def _decide(self, one: Decided) -> None:
        self._told(one.what, one.name, one.old, one.new, one.why)

    def _told(self, what: str, name: str, old: str, new: str, why: str) -> None:
        """For the journal, the bus and those who ask. What cannot be told was done all the same."""
        why = plain.line(why)
        at_s = self.world.wall()
        self._decided.append(seen.DecisionSeen(at_s, what, name, old, new, why))
        try:
            self.journal.write(what, name, old=old, new=new, why=why, master=self.config.name)
        except OSError as exc:
            log.warning("the journal of high availability: %s", exc)
        told = {"name": name, "old": old, "new": new, "message": why, "master": self.config.name}
        try:
            self.world.bus(f"{TAG}{what}/{name}", told)
        except Exception as exc:
            log.warning("the event of %s was not sent: %s", name, plain.line(exc))

    # what is shown

    def _think(self, view: View, now_s: float) -> None:
        """What would become of one host's guests, or of those of so many as the reserve is for: in
        turn. All soon anew when a guest or a host changes, and with each turn one whose guests find
        no place: what was in the way may be over."""
        if self.state.leading_s is None or not view.rooms:
            self._losses = {}
            return
        sets: dict[str, tuple[str, ...]] = {name: (name,) for name in self.config.members}
        self._doubt(view)
        known = self._losses.keys() - self._doubted >= sets.keys()
        if now_s - self._lost_s < (LOSS_AGAIN_S if known else LOSS_S):
            return
        self._lost_s = now_s
        if view.policy.reserve > 1:
            worst = reserve.worst(view, self.registry, now_s)
            sets |= {" and ".join(hosts): hosts for hosts in worst}
        losses = {name: one for name, one in self._losses.items() if name in sets}
        order = [name for name in sets if name not in losses]
        order += [name for name in losses if name in self._doubted] + list(losses)
        name = order[0]
        losses.pop(name, None)
        self._doubted.discard(name)
        lost = reserve.lose(view, self.registry, sets[name], now_s)
        why = {guest: one[:_LONGEST_WHY] for guest, one in lost.unplaced.items()}
        if known:
            self._doubted.update([one for one in losses if losses[one].unplaced][:1])
        self._losses = {**losses, name: seen.LossSeen(lost.moved, why)}
        if view.policy.reserve:
            self._short.forget(sets)
            self._short.look(name, self._losses[name])

    def _doubt(self, view: View) -> None:
        """What was thought may be wrong once a guest or a host has changed, or who is tied."""
        states = {name: one.state for name, one in self.registry.hosts.items()}
        about = self.registry.guests, states, view.tied
        if about != self._lost_of:
            self._lost_of, self._doubted = about, set(self._losses)

    def _show(self, view: View, now_s: float) -> None:
        self._shown_s = now_s
        try:
            outlook = seen.OutlookSeen(self._losses, dict(view.tied))
            if outlook != self._outlook:
                files.show(seen.outlook(self.opts), outlook)
                self._outlook = outlook
            files.show(seen.path(self.opts), self._seen(view, now_s))
        except OSError as exc:
            log.warning("what the engine sees cannot be shown: %s", exc)

    def _seen(self, view: View, now_s: float) -> seen.EngineSeen:
        members = self.registry.members or view.members
        votes = quorum.master_votes(members, view.alone)
        fresh = {name: one for name, one in view.beats.items() if not self._is_silent(one, now_s)}
        settled = self.registry.version == self.state.committed and self.state.ready
        return seen.EngineSeen(
            self.world.wall(),
            self.config.name,
            leading=self.state.leading_s is not None,
            leader=self._leader(fresh),
            settled=settled,
            heard=len(set(fresh) & set(members)),
            needed=quorum.majority(members, view.alone) - votes,
            hosts={name: self._host(name, view, now_s) for name in view.members},
            decided=tuple(self._decided),
            problem=self.problem or self.doubt,
            warnings=(self.misplaced,) if self.misplaced else (),
            settings=self.config.digest,
            clock_s=seen.boot_time(),
        )

    def _leader(self, fresh: dict[str, ArrivedBeat]) -> str:
        """Who leads, by what the hosts say."""
        if self.state.leading_s is not None:
            return self.config.name
        said = collections.Counter(one.beat.leader for one in fresh.values() if one.beat.leader)
        return said.most_common(1)[0][0] if said else ""

    def _host(self, name: str, view: View, now_s: float) -> seen.HostSeen:
        arrived, fence = view.beats.get(name), view.fences.get(name)
        words = f"{fence.outcome} (attempt {fence.attempt})" if fence else ""
        if arrived is None:
            return seen.HostSeen(fence=words)
        beat = arrived.beat
        return seen.HostSeen(
            beat.boot,
            round(max(0.0, now_s - arrived.at_s), 1),
            beat.armed,
            beat.phase,
            beat.storage_silent_s,
            words,
            self._differs(beat, view),
        )

    def _differs(self, beat: Beat, view: View) -> str:
        other = beat.settings not in ("", self.config.digest)
        return beat.terms.differs(view.terms) or ("other settings" if other else "")
