"""The engine of a master: with each heartbeat it collects input, has the package ``ha.model``
decide, and acts.

The proofs depend on the order: commitments are on disk, then messages are sent, then fences run.
The engine may be killed at any line: a new one reads the saved state, asks for the lead again, and
learns the decisions from a majority of the hosts.
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

from saltvirt import errors, sanitize
from saltvirt.ha.manager import files, reserve_alert, status_file
from saltvirt.ha.manager.binding_watch import BindingWatch
from saltvirt.ha.manager.config import HaConfig
from saltvirt.ha.manager.definitions import DefinitionStore
from saltvirt.ha.manager.desired_state import DesiredState, DesiredStateStore, from_registry, parse
from saltvirt.ha.manager.failover_simulation import with_sizes
from saltvirt.ha.manager.fencer import FenceEnd
from saltvirt.ha.manager.inbox import MasterInbox
from saltvirt.ha.manager.journal import HaJournal
from saltvirt.ha.manager.leases import LeaseDetector, PoolLocator
from saltvirt.ha.manager.remote_fences import RemoteFences
from saltvirt.ha.model import committed_config, decide, leadership, quorum, reserve
from saltvirt.ha.model.messages import Heartbeat, LeaderMessage, ReceivedHeartbeat
from saltvirt.ha.model.registry import CommittedConfig, Registry
from saltvirt.ha.model.view import (
    Fence,
    FenceResult,
    GuestConfig,
    HostBinding,
    SavedMasterState,
    StateChange,
    View,
    initial_state,
)
from saltvirt.ha.transport import frames
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.system import file_lock

log = logging.getLogger(__name__)

TAG = "salt/virt/ha/"
# intervals: of reports while nothing happens; of simulations of a host's loss, and the same once
# all are current
REPORT_S, LOSS_S, LOSS_RETRY_S = 5, 5, 60
# interval of checks that other verbs know the managed guests
GUARD_S = 60
_MAX_REASON = 300
_MAX_CHANGES = 50


class MessageSender(Protocol):
    """Sends messages to the hosts."""

    def send(self, host: str, kind: str, body: dict[str, Any]) -> None:
        """Send a message now, later or never, without waiting."""


class Fences(Protocol):
    """Runs fence agents."""

    @property
    def levels(self) -> dict[str, int]:
        """The number of fences of each host."""

    @property
    def results(self) -> dict[str, FenceResult]:
        """The result of the last attempt for each host."""

    def begin(self, fence: Fence) -> bool:
        """Start an attempt, without waiting."""

    def take_finished(self) -> list[FenceEnd]:
        """Return the attempts that have ended since the last call."""

    remote: RemoteFences


class HostInventory(Protocol):
    """The capacity of the hosts."""

    @property
    def hosts(self) -> dict[str, facts.Host]:
        """The hosts by name."""

    @property
    def answered_s(self) -> dict[str, float]:
        """When each host that answered was asked."""


@dataclass(frozen=True)
class EngineContext:
    """The engine's environment. send_event: called with a tag and data. program: the digest of the
    agents' program in this library."""

    sender: MessageSender
    fences: Fences
    inventory: HostInventory
    send_event: Callable[[str, dict[str, Any]], None]
    clock: Callable[[], float] = status_file.boot_time
    wall_clock: Callable[[], float] = time.time
    program: str = ""


def must_save(old: SavedMasterState | None, new: SavedMasterState) -> bool:
    """Whether the state must be on disk before messages are sent. The sequence number of a
    heartbeat need not be: the last report about a host was saved when it first arrived."""
    return old is None or _lasting(old) != _lasting(new)


def _lasting(saved: SavedMasterState) -> tuple[object, ...]:
    host_states = {name: host_state.lasting for name, host_state in saved.host_states.items()}
    return saved.term, saved.registry.stamp, host_states


class Engine:
    """opts: of the master. Raises OperationFailed if a file cannot be read, because the engine must
    not act then."""

    def __init__(
        self,
        opts: file_lock.Opts,
        config: HaConfig,
        placement: PlacementPolicy,
        context: EngineContext,
    ) -> None:
        self.opts, self.config, self.placement, self.context = opts, config, placement, context
        self.path_warning = ""
        self.inbox = MasterInbox(config.members, context.clock)
        self.store, self.journal = DesiredStateStore(opts), HaJournal(opts)
        self.own_desired = self.desired = self.store.read_if_changed() or DesiredState()
        self.multi_master = len(config.masters) > 1
        # with several masters, one that has no file does not ask for the lead before it has learned
        self.config_known = self.multi_master or (
            self.store.path.exists() and not self.own_desired.fresh
        )
        self._previous: DesiredState | None = None
        self._guarded: DesiredState | None = None
        self._guard_s = float("-inf")
        self._parse_cache = CommittedConfig(), self.own_desired
        self.definitions = DefinitionStore(opts)
        self.saved = files.read(status_file.state_path(opts), SavedMasterState)
        self.state = initial_state(config.name, self.saved or SavedMasterState(), context.clock())
        self.remote = context.fences.remote = RemoteFences(context.sender.send, self.hears)
        self.problem = self.state_warning = ""
        self._size_cache: tuple[Any, Any, Any, dict[str, GuestConfig]] = None, None, None, {}
        self._lease_detector = LeaseDetector(config.leases)
        self._pool_locator = PoolLocator(config.pools)
        self._binding_watch = BindingWatch()
        self._binding_cache: tuple[Any, Any, Any, dict[str, HostBinding]] = None, None, None, {}
        self._simulation: status_file.SimulationReport | None = None
        self._losses: dict[str, status_file.LossReport] = {}
        # the input of the simulations, and those with an older input
        self._losses_basis: object = None
        self._outdated: set[str] = set()
        self._reserve_alert = reserve_alert.ReserveAlert(partial(self._record, "reserve"))
        self._changes: collections.deque[status_file.ChangeRecord] = collections.deque(
            maxlen=_MAX_CHANGES
        )
        self._reported_s = self._simulated_s = float("-inf")
        self._settled = False

    def run(self, stop: threading.Event) -> None:
        """Run until stopped. An error in one heartbeat does not prevent the next one."""
        beat_s, clock = self.config.policy.beat_s, self.context.clock
        next_s = clock()
        while not stop.is_set():
            self.safe_beat()
            next_s = max(next_s + beat_s, clock())
            stop.wait(max(0, next_s - clock()))

    def safe_beat(self) -> None:
        """Run one heartbeat. Report an error as the engine's problem."""
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
            self._report_problem()

    def _report_problem(self) -> None:
        """Write the report, without raising: the next heartbeat begins in any case."""
        try:
            self._write_report(self.view(self.context.clock()), self.context.clock())
        except Exception as exc:
            log.warning("cannot report the engine's problem: %s", sanitize.one_line(exc))

    def beat(self) -> None:
        """Collect, decide, save, send, fence: in this order."""
        now_s = self.context.clock()
        self._refresh_desired()
        self._process_messages()
        view = self.view(now_s)
        decision = decide.decide(view, self.state, now_s)
        saved = decision.state.saved
        if must_save(self.saved, saved):
            try:
                files.write(status_file.state_path(self.opts), saved)
            except (errors.VirtError, OSError):
                self._send(self._ack_only(decision.message, saved), view)
                raise
            self.saved = saved
        self.state = decision.state
        self._send(decision.message, view)
        for fence in decision.fences:
            self._fence(fence)
        for change in decision.changes:
            self._decide(change)
        self._report_fences()
        was_settled, self._settled = self._settled, leadership.is_settled(self.state)
        if decision.changes or was_settled != self._settled or now_s - self._reported_s >= REPORT_S:
            self._simulate_losses(view, now_s)
            self._write_report(view, now_s)

    # input

    def _refresh_desired(self) -> None:
        """Read the desired state if it has changed. If it cannot be read, the last one remains
        valid."""
        try:
            updated = self.store.read_if_changed()
        except (errors.VirtError, OSError) as exc:
            updated = None
            if not self.state_warning:
                log.error("%s", exc)
            self.state_warning = f"the engine uses the last desired state that it could read: {exc}"
        if not self.multi_master and not self.store.path.exists():
            self._restore()
        elif updated is not None and self.store.path.exists():
            if updated.fresh and self.config_known:
                self._previous = self.own_desired
            self.own_desired, self.state_warning = updated, ""
            self.config_known = self.multi_master or not updated.fresh
        if self.own_desired.fresh and not self.multi_master:
            self._join()
        self._guard()
        desired = self._effective() if self.multi_master else self.own_desired
        if desired is not self.desired:
            self.desired = desired
            self.definitions.retain_only(desired.guests)

    def _restore(self) -> None:
        """Restore a missing file. It never counts as an empty desired state: the last one that was
        read remains valid, or else what the hosts store, once a majority has reported it."""
        registry = self.registry
        if not self.config_known and not self.state.ready:
            return
        if not self.config_known:
            self.own_desired, self.config_known = from_registry(registry), True
        if self.own_desired == DesiredState():
            return
        try:
            if not self.store.restore(self.own_desired):
                return
        except (errors.VirtError, OSError) as exc:
            self.state_warning = f"{self.store.path} is missing and cannot be written: {exc}"
            return
        reason = f"{self.store.path} was missing and was written again from the last known state"
        log.error("%s", reason)
        self._record("request", self.config.name, "", "restored", reason)

    def _join(self) -> None:
        """Complete a file that a verb created because there was none. Add the last state that was
        read, or else what the hosts store, once a majority has reported it. Nothing is decided
        before."""
        if self._previous is None and not self.state.ready:
            return
        try:
            previous = self._previous or from_registry(self.registry)
            self.own_desired = self.store.join(previous)
        except (errors.VirtError, OSError) as exc:
            self.state_warning = f"{self.store.path} was lost and cannot be completed: {exc}"
            return
        self.config_known, self._previous = True, None
        if previous.guests:
            reason = f"{self.store.path} was lost: the last known state was added to it"
            log.error("%s", reason)
            self._record("request", self.config.name, "", "completed", reason)

    def _guard(self) -> None:
        """Tell other verbs which guests are managed, again if that file was deleted."""
        now_s = self.context.clock()
        if not self.config_known or (
            self._guarded is self.own_desired and now_s - self._guard_s < GUARD_S
        ):
            return
        try:
            self.store.guard(self.own_desired)
        except (errors.VirtError, OSError) as exc:
            self.state_warning = f"other verbs do not know yet which guests are managed: {exc}"
            return
        if self._guarded is not self.own_desired:
            self.state_warning = ""
        self._guarded, self._guard_s = self.own_desired, now_s

    def _effective(self) -> DesiredState:
        """Return the desired state to use: what the masters have agreed on, from the registry that
        a leader has read. Other masters use their own file, which learns it."""
        committed = self.registry.config
        members = self.registry.members or tuple(self.config.members)
        beats = [item.beat for item in self.inbox.beats().values()]
        candidates = [committed_config.find_committed(beats, members)]
        if self.state.leading_s is not None and leadership.is_settled(self.state):
            candidates.append(committed)
        latest = max(candidates, key=lambda item: item.stamp, default=CommittedConfig())
        is_newer = latest.stamp > self.own_desired.shared_config.stamp
        if latest.text and (is_newer or self.own_desired.offers or not self.store.path.exists()):
            try:
                self._learn(latest)
            except (errors.OperationFailed, OSError) as exc:  # retried with the next heartbeat
                self.state_warning = (
                    f"the configuration that the masters agreed on cannot be saved yet: {exc}"
                )
        is_newer = self.own_desired.shared_config.stamp > committed.stamp
        if not committed.text or not self.state.ready or is_newer:
            return self.own_desired
        if self._parse_cache[0] != committed:
            self._parse_cache = committed, parse(committed)
        return self._parse_cache[1]

    def _learn(self, committed: CommittedConfig) -> None:
        path = (
            files.folder(self.opts)
            / f"desired_state-given-up-{int(self.context.wall_clock())}.json"
        )
        if not self.store.learn(committed, path):
            return
        reason = (
            "the requests of another master were agreed on: the requests of this master are in "
            f"{path}"
        )
        log.error("%s", reason)
        self._record("request", self.config.name, "", "given up", reason)

    def view(self, now_s: float) -> View:
        """Return the input of a decision."""
        desired, placement_hosts = self.desired, self.context.inventory.hosts
        in_maintenance = {
            name for name, host in placement_hosts.items() if host.maintenance is not None
        }
        return View(
            masters=self.config.masters,
            members=tuple(self.config.members),
            beats=self.inbox.beats(),
            answered_s=self.context.inventory.answered_s,
            placement_hosts=placement_hosts,
            guests=self._guests(placement_hosts),
            rules=tuple(desired.rules.values()),
            relocations=desired.relocations,
            fence_levels=self.context.fences.levels,
            fences=self.context.fences.results,
            confirmed=desired.confirmed,
            maintenance=frozenset(in_maintenance),
            bindings=self._bindings(placement_hosts),
            armed=desired.armed,
            own_config=self._own_config(),
            config_known=self.config_known,
            program=self.context.program,
            pools=self._pool_locator.evaluate(self.definitions.by_name),
            policy=self.config.policy,
            placement=self.placement,
        )

    def _own_config(self) -> CommittedConfig | None:
        """Return the desired state of this master's file."""
        if not self.multi_master:
            is_known = self.config_known and self.store.path.exists()
            return self.own_desired.shared_config if is_known else None
        own_config, committed = self.own_desired.shared_config, self.registry.config
        if not self.store.path.exists():
            return CommittedConfig()
        # a master of another version may encode the same content differently
        is_same = own_config.stamp == committed.stamp > (0, 0) and not self.own_desired.offers
        return committed if is_same else own_config

    def _guests(self, placement_hosts: dict[str, facts.Host]) -> dict[str, GuestConfig]:
        """Return the guests with their sizes and leases, recomputed when any of it changed."""
        definitions = self.definitions.by_name
        cache = self._size_cache
        if (
            cache[0] is not self.desired
            or cache[1] is not placement_hosts
            or cache[2] is not definitions
        ):
            configs = with_sizes(self.desired.sized_guests, placement_hosts.values())
            leased = self._lease_detector.evaluate(definitions)
            configs |= {
                name: replace(configs[name], leased=True) for name in leased & configs.keys()
            }
            self._size_cache = self.desired, placement_hosts, definitions, configs
        return self._size_cache[3]

    def _bindings(self, placement_hosts: dict[str, facts.Host]) -> dict[str, HostBinding]:
        """Return the guests that can run on one host only, recomputed when any of it changed."""
        definitions, stamp = self.definitions.by_name, self.registry.stamp
        if (
            self._binding_cache[0] is not definitions
            or self._binding_cache[1] is not placement_hosts
            or self._binding_cache[2] != stamp
        ):
            bindings = self._binding_watch.evaluate(
                definitions.values(), self.registry, placement_hosts
            )
            self._binding_cache = definitions, placement_hosts, stamp, bindings
        return self._binding_cache[3]

    @property
    def registry(self) -> Registry:
        """The last decisions, stored by enough hosts or not yet."""
        return self.state.saved.registry

    def _process_messages(self) -> None:
        """Handle the messages of hosts other than heartbeats. They decide nothing."""
        for host, kind, body in self.inbox.take_messages():
            try:
                if kind == frames.DEFINITION:
                    self._definition(host, body)
                elif kind == frames.JOURNAL:
                    self._journal_act(host, body)
                elif kind == frames.FENCED:
                    self.remote.handle_reply(host, body)
            except (errors.VirtError, OSError) as exc:
                log.warning("%s", sanitize.one_line(exc))

    def _definition(self, host: str, body: dict[str, Any]) -> None:
        name = body.get("name")
        if not isinstance(name, str) or name not in self.desired.guests:
            raise errors.BadAnswer(f"{host} sent the definition of a guest that is not managed")
        if not self._may_run_on(host, name):
            raise errors.BadAnswer(
                f"{host} sent the definition of {name}, which is on another host"
            )
        if self.definitions.put(host, body):
            self.journal.write("definition", name, host=host)

    def _may_run_on(self, host: str, name: str) -> bool:
        """Whether the guest may run on the host; or runs nowhere, and was last on it. A host that
        has failed since has an older definition."""
        record = self.registry.guests.get(name)
        if record is None or not record.locations:
            last = record.last if record else ""
            return host == (last or self.desired.guests[name].host)
        return any(location.host == host for location in record.locations)

    def _journal_act(self, host: str, body: dict[str, Any]) -> None:
        guest = body.get("guest") or ""
        if guest and not (isinstance(guest, str) and guest in self.desired.guests):
            raise errors.BadAnswer(f"{host} reported an action on a guest that is not managed")
        fields = {key: str(body.get(key, ""))[:500] for key in ("action", "reason")}
        self.journal.write("host", host, guest=guest, **fields)

    # actions

    def _send(self, message: LeaderMessage, view: View) -> None:
        bodies: dict[bool, dict[str, Any]] = {}  # most hosts get the same message
        for host in self.config.members:
            arrived = view.beats.get(host)
            beat = arrived.beat if arrived else None
            omits_registry = decide.has_registry(message, beat)
            if omits_registry not in bodies:
                bodies[omits_registry] = decide.without_stored(message, beat).to_answer()
            self.context.sender.send(host, frames.CALL, bodies[omits_registry])
            if arrived is None or self._is_silent(arrived, self.context.clock()):
                self.definitions.forget_host(host)
                continue
            for definition in self.definitions.unsent(arrived.beat, self.registry.guests):
                self.context.sender.send(host, frames.DEFINITION, definition.body())

    def _ack_only(self, message: LeaderMessage, saved: SavedMasterState) -> LeaderMessage:
        """Return the message of a master whose disk cannot be written. It does not lead, but still
        acknowledges hosts that reported nothing that would have to be saved. Otherwise a host that
        only this master hears would cut its power."""
        saved_states = self.saved.host_states if self.saved else {}
        acks = {
            host: ack
            for host, ack in message.acks.items()
            if host in saved_states
            and saved_states[host].lasting == saved.host_states[host].lasting
        }
        state = self.state
        return LeaderMessage(
            message.master,
            state.saved.term,
            state.seq,
            False,
            sole_master=message.sole_master,
            acks=acks,
        )

    def hears(self, host: str) -> bool:
        """Whether the host is heard now. Thread-safe."""
        arrived = self.inbox.beats().get(host)
        return arrived is not None and not self._is_silent(arrived, self.context.clock())

    def _is_silent(self, arrived: ReceivedHeartbeat, now_s: float) -> bool:
        return now_s - arrived.at_s >= self.config.policy.suspect_s

    def _fence(self, fence: Fence) -> None:
        is_started = self.context.fences.begin(fence)
        reason = f"attempt {fence.attempt}, fence {fence.level + 1}"
        reason += "" if is_started else ": it is still running"
        self._record("fence", fence.host, "", "started" if is_started else "waiting", reason)

    def _report_fences(self) -> None:
        for end in self.context.fences.take_finished():
            reason = f"{end.agent}, attempt {end.fence.attempt}"
            reason += f": {end.outcome.message}" if end.outcome.message else ""
            self._record("fence", end.fence.host, "started", end.outcome.state, reason)

    def _decide(self, change: StateChange) -> None:
        self._record(change.kind, change.name, change.old, change.new, change.reason)

    def _record(self, kind: str, name: str, old: str, new: str, reason: str) -> None:
        """Record a change in the journal, as an event and in the report. An error does not undo the
        change."""
        reason = sanitize.one_line(reason)
        at_s = self.context.wall_clock()
        self._changes.append(status_file.ChangeRecord(at_s, kind, name, old, new, reason))
        try:
            self.journal.write(kind, name, old=old, new=new, reason=reason, master=self.config.name)
        except OSError as exc:
            log.warning("the journal of high availability: %s", exc)
        event = {"name": name, "old": old, "new": new, "message": reason}
        event["master"] = self.config.name
        try:
            self.context.send_event(f"{TAG}{kind}/{name}", event)
        except Exception as exc:
            log.warning("cannot send the event about %s: %s", name, sanitize.one_line(exc))

    # reports

    def _simulate_losses(self, view: View, now_s: float) -> None:
        """Simulate the loss of one host, or of as many hosts as the reserve is for, in turn.
        Simulate all again soon after a guest or a host has changed, and in each turn one whose
        guests were not placed, because the obstacle may be gone."""
        if self.state.leading_s is None or not view.placement_hosts:
            self._losses = {}
            return
        host_sets: dict[str, tuple[str, ...]] = {name: (name,) for name in self.config.members}
        self._mark_outdated(view)
        all_current = self._losses.keys() - self._outdated >= host_sets.keys()
        if now_s - self._simulated_s < (LOSS_RETRY_S if all_current else LOSS_S):
            return
        self._simulated_s = now_s
        if view.policy.reserve > 1:
            worst = reserve.worst(view, self.registry, now_s)
            host_sets |= {" and ".join(hosts): hosts for hosts in worst}
        losses = {name: item for name, item in self._losses.items() if name in host_sets}
        order = [name for name in host_sets if name not in losses]
        order += [name for name in losses if name in self._outdated] + list(losses)
        name = order[0]
        losses.pop(name, None)
        self._outdated.discard(name)
        loss = reserve.simulate_loss(view, self.registry, host_sets[name], now_s)
        reasons = {guest: item[:_MAX_REASON] for guest, item in loss.unplaced.items()}
        if all_current:
            self._outdated.update([item for item in losses if losses[item].unplaced][:1])
        self._losses = {**losses, name: status_file.LossReport(loss.placements, reasons)}
        if view.policy.reserve:
            self._reserve_alert.forget(host_sets)
            self._reserve_alert.update(name, self._losses[name])

    def _mark_outdated(self, view: View) -> None:
        """Mark all simulations as outdated if a guest, a host or a binding has changed."""
        states = {name: record.state for name, record in self.registry.hosts.items()}
        basis = self.registry.guests, states, view.bindings
        if basis != self._losses_basis:
            self._losses_basis, self._outdated = basis, set(self._losses)

    def _write_report(self, view: View, now_s: float) -> None:
        self._reported_s = now_s
        try:
            simulation = status_file.SimulationReport(self._losses, dict(view.bindings))
            if simulation != self._simulation:
                files.write_volatile(status_file.simulation_path(self.opts), simulation)
                self._simulation = simulation
            files.write_volatile(status_file.report_path(self.opts), self._report(view, now_s))
        except OSError as exc:
            log.warning("cannot write the engine's report: %s", exc)

    def _report(self, view: View, now_s: float) -> status_file.EngineReport:
        members = self.registry.members or view.members
        votes = quorum.master_votes(members, view.sole_master)
        fresh = {
            name: arrived
            for name, arrived in view.beats.items()
            if not self._is_silent(arrived, now_s)
        }
        settled = self.registry.version == self.state.committed and self.state.ready
        return status_file.EngineReport(
            self.context.wall_clock(),
            self.config.name,
            leading=self.state.leading_s is not None,
            leader=self._leader(fresh),
            settled=settled,
            heard=len(set(fresh) & set(members)),
            needed=quorum.majority(members, view.sole_master) - votes,
            hosts={name: self._host(name, view, now_s) for name in view.members},
            changes=tuple(self._changes),
            problem=self.problem or self.state_warning,
            warnings=(self.path_warning,) if self.path_warning else (),
            settings=self.config.digest,
            clock_s=status_file.boot_time(),
        )

    def _leader(self, fresh: dict[str, ReceivedHeartbeat]) -> str:
        """Return the leader, as the hosts report it."""
        if self.state.leading_s is not None:
            return self.config.name
        votes = collections.Counter(
            arrived.beat.leader for arrived in fresh.values() if arrived.beat.leader
        )
        return votes.most_common(1)[0][0] if votes else ""

    def _host(self, name: str, view: View, now_s: float) -> status_file.HostReport:
        arrived, fence = view.beats.get(name), view.fences.get(name)
        fence_text = f"{fence.outcome} (attempt {fence.attempt})" if fence else ""
        if arrived is None:
            return status_file.HostReport(fence=fence_text)
        beat = arrived.beat
        return status_file.HostReport(
            beat.boot,
            round(max(0.0, now_s - arrived.at_s), 1),
            beat.armed,
            beat.phase,
            beat.storage_silent_s,
            fence_text,
            self._differs(beat, view),
        )

    def _differs(self, beat: Heartbeat, view: View) -> str:
        other_settings = beat.settings not in ("", self.config.digest)
        return beat.terms.differs(view.terms) or ("other settings" if other_settings else "")
