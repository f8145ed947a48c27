"""The service: with each heartbeat it computes a step, saves it, sends it and acts
(``AgentStep``)."""

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

from saltvirt import errors, sanitize
from saltvirt.ha.agent import definitions, pool_heartbeat, shutdown_reason
from saltvirt.ha.agent.definitions import DefinitionCache, GuestDefinition
from saltvirt.ha.agent.feeder import Feeder
from saltvirt.ha.agent.fencing import FenceRunner
from saltvirt.ha.agent.guests import Guests, LibvirtConfig
from saltvirt.ha.agent.inbox import AgentInbox, PeerRequest
from saltvirt.ha.agent.instances import InstanceTable
from saltvirt.ha.agent.migrations import GuestMigrations
from saltvirt.ha.agent.pool_keys import PoolKeys
from saltvirt.ha.agent.settings import AgentSettings
from saltvirt.ha.agent.shared_definitions import FOLDER, SharedDefinitions
from saltvirt.ha.agent.store import AgentStore
from saltvirt.ha.agent.watchdog import WatchdogDevice
from saltvirt.ha.agent.writer import DiskWriter
from saltvirt.ha.fencing.setting import FenceReply
from saltvirt.ha.model import agent, agent_facts, agent_view, disks, state_disk
from saltvirt.ha.model.agent_view import AgentAction, AgentState, AgentView, SavedAgentState
from saltvirt.ha.model.messages import Heartbeat, ReceivedHeartbeat
from saltvirt.ha.model.registry import IGNORED
from saltvirt.ha.transport import frames
from saltvirt.ha.transport.peer_connection import PeerTiming
from saltvirt.ha.transport.peer_network import PeerNetwork
from saltvirt.host.domain import guest_lock
from saltvirt.system import boot

log = logging.getLogger(__name__)

# requests by signals
STOP, RESTART = "stop", "again"
_STOP_QUERY_S = 5
# where libvirt stores the definitions of guests, by URI
_DEFINITION_FOLDERS = {"qemu:///system": "/etc/libvirt/qemu"}
# maximum wait for the disk, in heartbeats
_DISK_BEATS = 0.25


def boottime() -> float:
    """Return the clock of this boot. It continues while the host sleeps, and cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Service:
    """The agent. clock: see ``boottime``. trial: returns why the files on disk cannot take over, or
    nothing. program: the digest of the running program."""

    def __init__(
        self,
        settings: AgentSettings,
        clock: Callable[[], float] = boottime,
        trial: Callable[[], str] = str,
        program: str = "",
    ) -> None:
        self.settings, self.policy, self.clock = settings, settings.ha_policy, clock
        self._trial, self.program, self._trial_lock = trial, program, threading.Lock()
        self._settings_digest = settings.digest
        self.wake = threading.Event()
        self.stop_request, self._stop_query_s = "", 0.0
        self.exit_reason: str | None = None
        self.store = AgentStore(settings.state, settings.run, boot.current())
        self.store.lock()
        self.state, lease_from_s = self.store.begin(settings.host, clock())
        self.disk = DiskWriter(
            self.state.saved, self._save, _DISK_BEATS * self.policy.beat_s,
            self.log_once,
        )  # fmt: skip
        self.watchdog = WatchdogDevice(
            settings.watchdog, self.policy.watchdog_s, self.state.watchdog_s
        )
        self.feeder = Feeder(self.watchdog, self.store, self.policy, clock)
        self.feeder.resume(self.state, lease_from_s)
        self.instances = InstanceTable(f"{settings.run}/guests.json", self.store.boot_id, clock())
        locks = f"{guest_lock.FOLDER}/guests"
        definitions_folder = _DEFINITION_FOLDERS.get(settings.uri, "")
        libvirt_config = LibvirtConfig(
            settings.uri, locks, self.policy.shutdown_wait_s, self.policy.beat_s, definitions_folder
        )
        definition_cache = DefinitionCache(f"{settings.state}/definitions", self.recorded_names())
        self.guests = Guests(
            libvirt_config, self.instances, definition_cache, clock, self.policy.stable_s
        )
        self.guests.on_definition = self.send_definition
        self.migrations = GuestMigrations(
            self.guests,
            clock,
            self.ask,
            lambda host: f"qemu+tls://{host}/system",
            self.report_stayed,
        )
        self.inbox = AgentInbox(settings.masters, clock, self.wake.set)
        self.fencing = FenceRunner(
            settings.host,
            lambda: self.inbox.leader_messages,
            clock,
            self.policy.suspect_s,
            self.send_fence_result,
        )
        self.keys = PoolKeys(f"{settings.run}/keys.json")
        self.pools = [
            pool_heartbeat.PoolHeartbeat(
                folder,
                pool_heartbeat.worker_argv(folder, settings.host),
                settings.members,
                clock,
                self.keys.is_of,
            )
            for folder in settings.pools
        ]
        self.shared_definitions = [
            SharedDefinitions(
                folder, pool_heartbeat.worker_argv(folder, settings.host, FOLDER), clock
            )
            for folder in settings.pools
        ]
        self._definitions: dict[str, GuestDefinition] = {}
        beat_s, suspect_s = self.policy.beat_s, self.policy.suspect_s
        timing = PeerTiming(beat_s, suspect_s / 2, 2 * suspect_s, min(2, suspect_s / 2))
        self.network = PeerNetwork(settings.credentials, self.inbox.on_frame, timing)
        self._listens = False
        self._last_actions: set[AgentAction] = set()
        self._last_beat: Heartbeat | None = None
        self._masters_heard: set[str] = set()
        self._last_message = ""

    # life cycle

    def run(self) -> str:
        """Run until the end. Return STOP, or RESTART if it is to run again."""
        for name in self.settings.members:
            if name != self.settings.host:
                self.network.add_peer(name, *self.settings.endpoint(name))
        self._update_guests()
        self.feeder.begin()
        self.guests.begin()
        next_s = self.clock()
        while self.exit_reason is None:
            self.beat()
            now_s = self.clock()
            next_s = max(next_s + self.policy.beat_s, now_s)
            while self.exit_reason is None and self.clock() < next_s:
                self.wake.wait(max(0.01, next_s - self.clock()))
                self.wake.clear()
                self.handle_requests()
        return self.exit_reason

    def beat(self) -> None:
        """Run one heartbeat. An error does not prevent the next one."""
        try:
            self.listen()
            if not self.instances.is_known:
                self.log_once("waiting for libvirt, which may have guests")
                return
            self.run_step(self.clock())
        except Exception as exc:  # if the agent ended, the host would be fenced
            log.exception("a heartbeat failed: %s", exc)

    def close(self) -> None:
        """Release all resources. The watchdog stays armed, unless no other machine knows that it is
        armed. Feed it until the end: a slow disk or storage that hangs delays the end, and the next
        agent feeds it only some time later."""
        self.disk.end()
        if self.exit_reason == RESTART:
            self.feeder.disarm_unannounced(self.state)
        self.guests.end()
        for pool in self.pools:
            pool.end()
        for shelf in self.shared_definitions:
            shelf.end()
        with contextlib.suppress(Exception):
            self.network.close()
        self.feeder.end()
        self.store.unlock()

    def on_signal(self, number: int, _frame: object) -> None:
        """SIGTERM: stop cleanly. SIGHUP: restart with the files on disk."""
        if number == signal.SIGHUP:
            threading.Thread(target=self._renew, name="trial", daemon=True).start()
        else:
            self.stop_request = self.stop_request or STOP
        self.wake.set()

    def _renew(self) -> None:
        """Restart with the files on disk if they can take over; otherwise continue."""
        if not self._trial_lock.acquire(blocking=False):
            return
        try:
            problem = self._trial()
        finally:
            self._trial_lock.release()
        if problem:
            log.error(
                "continuing with the old program and settings, because the new ones fail: %s",
                problem,
            )
        else:
            self.exit_reason = self.exit_reason or RESTART
            self.wake.set()

    def listen(self) -> None:
        """Listen, as soon as possible."""
        if self._listens:
            return
        host, members = self.settings.host, set(self.settings.members)
        try:
            port = self.settings.endpoint(host)[1]
            self.network.listen("", port, members - {host}, self.settings.masters)
            self._listens = True
        except errors.ConnectionFailed as exc:
            self.log_once(str(exc))

    def _save(self, saved: SavedAgentState) -> None:
        self.store.save(saved)

    def log_once(self, text: str) -> None:
        """Log a problem unless it was the last one."""
        if text != self._last_message:
            log.warning("%s", text)
        self._last_message = text

    # steps

    def run_step(self, now_s: float) -> None:
        """Compute a step, save it, feed the watchdog, send the heartbeat, run the actions."""
        step = self.durable_step(self.view(now_s), now_s)
        if step is None:
            return
        self.state = step.state
        self.feeder.follow(step)
        self._update_guests()
        self.guests.health.agents = self.agents()
        self.send_beat(step.beat)
        self.share_definitions()
        actions = set(step.actions)
        for action in step.actions:
            if action.kind != agent_view.FEED:
                self.perform(action, action not in self._last_actions)
            if self.exit_reason is not None:
                break
        self._last_actions = actions

    def durable_step(self, view: AgentView, now_s: float) -> agent.AgentStep | None:
        """Return a step whose commitments are on disk."""
        step = state_disk.durable_step(self.state, view, now_s, self.policy, self.disk)
        try:
            self.store.opened = self.watchdog.is_armed
            self.store.save_runtime(step.state)
        except OSError as exc:
            self.log_once(f"cannot write {exc.filename or self.settings.run}: {exc.strerror}")
            if self._last_beat is None:
                return None
            return state_disk.read_only_step(self.state, self._last_beat, view, now_s, self.policy)
        self._last_beat = step.beat
        return step

    def view(self, now_s: float) -> AgentView:
        """Return the input of a step."""
        beats = {k: v for k, v in self.inbox.beats.items() if k in self.settings.members}
        self.keys.receive(beats)
        return AgentView(
            beats=beats,
            stored=self.stored(now_s),
            messages=self.inbox.believable(self.instances.observed_s, self.recorded_names()),
            guests=self.guests.health.annotate(self.instances.statuses(self.names())),
            watchdog=self.watchdog.is_usable,
            works=self.watchdog.is_armed,
            watchdog_s=self.watchdog.timeout_s,
            storage_silent_s=max((pool.silent_s() for pool in self.pools), default=None),
            pools_silent=self.silent(),
            request=self.stop_reason(now_s),
            leases=self.instances.leases(),
            program=self.program,
            settings=self._settings_digest,
            definitions=self.guests.definition_cache.names,
        )

    def silent(self) -> dict[str, float]:
        """Return the pools that could not be written to for a longer time."""
        durations = {pool.folder: round(pool.silent_s(), 1) for pool in self.pools}
        limit_s = self.policy.suspect_s / 2
        return {folder: silent_s for folder, silent_s in durations.items() if silent_s >= limit_s}

    def stored(self, now_s: float) -> dict[str, ReceivedHeartbeat]:
        """Return the newest heartbeat of each peer from pools that were read recently."""
        beats: dict[str, ReceivedHeartbeat] = {}
        for pool in self.pools:
            if pool.read_s is None or now_s - pool.read_s > self.policy.suspect_s:
                continue
            for name, beat in pool.beats.items():
                old = beats.get(name)
                if old is None or (old.beat.boot, old.beat.seq) < (beat.boot, beat.seq):
                    beats[name] = ReceivedHeartbeat(beat, pool.read_s)
        return {name: arrived for name, arrived in beats.items() if name != self.settings.host}

    def recorded_names(self) -> set[str]:
        """Return the guests that are in the agent's registries."""
        return {*self.state.saved.registry.guests, *self.state.saved.pending.guests}

    def _update_guests(self) -> None:
        managed = self.managed()
        for name in self.guests.managed - managed:
            self.guests.release(name)
        self.guests.names, self.guests.managed = self.names(), managed
        self.guests.owned = self.owned()

    def managed(self) -> frozenset[str]:
        """Return the guests that only HA may start, without those that are ignored."""
        return frozenset(
            name
            for registry in (self.state.saved.registry, self.state.saved.pending)
            for name, record in registry.guests.items()
            if record.state != IGNORED
        )

    def owned(self) -> frozenset[str]:
        """Return the guests that belong to this host in this boot."""
        host_boot, guests = (self.state.host, self.state.boot), self.state.saved.registry.guests
        return frozenset(
            name for name, record in guests.items() if (record.host, record.boot) == host_boot
        )

    def names(self) -> frozenset[str]:
        """Return all managed guests, including those of a registry that is about to be stored."""
        names = self.recorded_names()
        for arrived in self.inbox.leader_messages.values():
            names |= set(arrived.message.registry.guests) if arrived.message.registry else set()
        return frozenset(names)

    def agents(self) -> dict[str, int]:
        """Return the guests of this host whose guest agents are to be queried, and for how long
        each may be silent."""
        records = self.state.saved.registry.guests
        return {
            name: record.agent_silent_s
            for name, record in records.items()
            if record.agent_silent_s and record.host == self.settings.host
        }

    def stop_reason(self, now_s: float) -> str:
        """Return why the agent is asked to stop. A shutdown of the host may begin while the agent
        stops."""
        if self.stop_request and now_s - self._stop_query_s >= _STOP_QUERY_S:
            reason = shutdown_reason.detect()
            self.stop_request = self.stop_request if reason == agent_view.STOP else reason
            self._stop_query_s = now_s
        return self.stop_request

    # output

    def send_beat(self, beat: Heartbeat) -> None:
        """Send the heartbeat to masters, peers and pools, each with the fields that it needs."""
        digest = self.guests.definition_cache.digest(self.state.saved.registry.guests)
        master_frame = frames.frame(
            frames.BEAT, replace(beat.to_master(), definitions=digest).to_answer()
        )
        for name in self.settings.masters:
            self.network.send(name, master_frame)
        peer_beat = beat.to_peers()
        data = replace(peer_beat, pool_key=self.keys.local_key).to_answer()
        acks = data["acks"]
        for name in self.settings.members:
            if name != self.settings.host:
                own_acks = {name: acks[name]} if name in acks else {}
                self.network.send(name, frames.frame(frames.BEAT, {**data, "acks": own_acks}))
        sealed = self.keys.seal(peer_beat) if self.pools else b""
        for pool in self.pools:
            pool.write(sealed)

    def send_definition(self, definition: GuestDefinition) -> None:
        """Send a definition that has changed in libvirt."""
        self._definitions[definition.name] = definition
        frame = frames.frame(frames.DEFINITION, definition.body())
        for name in self.settings.masters:
            self.network.send(name, frame)

    def share_definitions(self) -> None:
        """Write the definitions of this host's guests to the shared pools."""
        guests = self.state.saved.registry.guests
        for name in set(self._definitions) - self.guests.names:
            self._definitions.pop(name, None)
        owned = self.owned()
        shared = {
            name: definition
            for name, definition in self._definitions.copy().items()
            if name in owned
        }
        for shelf in self.shared_definitions:
            shelf.update(shared, guests, self.instances.is_defined)

    def send_fence_result(self, master: str, result: FenceReply) -> None:
        """Send the result of a fence that ran here to the master that requested it."""
        self.network.send(master, frames.frame(frames.FENCED, result.to_answer()))

    def ask(self, host: str, guest: str, epoch: int) -> None:
        """Ask a peer whether a guest may migrate to it."""
        self.network.send(host, frames.frame(frames.INCOMING, {"guest": guest, "epoch": epoch}))

    def journal(self, action: AgentAction) -> None:
        """Log an action, and send it to the masters' journal."""
        summary = " ".join(part for part in (action.kind, action.guest, action.host) if part)
        log.info("%s: %s", summary, action.reason)
        self._send_journal(summary, action.guest, action.reason)

    def report_stayed(self, guest: str, host: str, reason: str) -> None:
        """Report to the masters' journal why a migration failed, with libvirt's message."""
        self._send_journal(f"no migration of {guest} to {host}", guest, reason)

    def _send_journal(self, action: str, guest: str, reason: str) -> None:
        body = {"at": time.time(), "action": action, "guest": guest, "reason": reason}
        for name in self.settings.masters:
            self.network.send(name, frames.frame(frames.JOURNAL, body))

    # requests

    def handle_requests(self) -> None:
        """Handle all waiting requests. An error does not affect the next one."""
        self.check_masters()
        with contextlib.suppress(queue.Empty):
            while True:
                request = self.inbox.requests.get_nowait()
                try:
                    self._handle(request)
                except (errors.VirtError, OSError) as exc:
                    log.warning(
                        "%s from %s: %s", request.kind, request.sender, sanitize.one_line(exc)
                    )
                except Exception as exc:  # as in beat()
                    log.exception("%s from %s failed: %s", request.kind, request.sender, exc)

    def check_masters(self) -> None:
        """Send all definitions again if a master is new or back."""
        limit_s = 2 * self.policy.suspect_s
        heard = {
            name
            for name in self.settings.masters
            if (silent_s := self.network.heard_s(name)) is not None and silent_s < limit_s
        }
        if heard - self._masters_heard:
            self.guests.resend()
        self._masters_heard = heard

    def _handle(self, request: PeerRequest) -> None:
        body = request.body
        if request.kind == frames.DEFINITION:
            self.guests.definition_cache.put(
                definitions.parse(_text(body, "name"), _text(body, "xml"))
            )
            return
        if request.kind == frames.FENCE:
            self.fencing.handle(request.sender, body)
            return
        if request.kind not in (frames.INCOMING, frames.INCOMING_ANSWER):
            return
        guest, epoch = _text(body, "guest"), body.get("epoch")
        if not isinstance(epoch, int):
            raise errors.BadAnswer("the request has no epoch")
        if request.kind == frames.INCOMING_ANSWER:
            self.migrations.handle_answer(request.sender, guest, epoch, body.get("yes") is True)
            return
        reply = {"guest": guest, "epoch": epoch, "yes": self.consents(guest, epoch)}
        self.network.send(request.sender, frames.frame(frames.INCOMING_ANSWER, reply))

    def consents(self, guest: str, epoch: int) -> bool:
        """Whether a guest may migrate to this host, and no instance of it exists here."""
        now_s = self.clock()
        silent_pools = {
            pool.folder for pool in self.pools if pool.silent_s() > self.policy.suspect_s
        }
        definition = self.guests.definition_cache.get(guest)
        used_pools = (
            disks.pools(ElementTree.fromstring(definition.xml), silent_pools)
            if definition
            else None
        )
        lost_pools = silent_pools if used_pools is None else used_pools
        is_consented = agent_facts.consents(self.state, guest, epoch, now_s, self.policy)
        return (
            is_consented
            and not lost_pools
            and self.instances.is_known
            and self.migrations.expect(guest, epoch)
        )

    # actions

    def perform(self, action: AgentAction, is_new: bool) -> None:
        """Run an action. Nothing here waits for libvirt or storage."""
        if is_new:
            self.journal(action)
        handlers: dict[str, Callable[[], None]] = {
            agent_view.ARM: self.arm,
            agent_view.DISARM: self.feeder.disarm,
            agent_view.START: lambda: self.guests.start(action.guest, action.epoch),
            agent_view.ADOPT: lambda: self.guests.adopt(action.guest, action.epoch),
            agent_view.KILL: lambda: self.guests.kill(action.guest),
            agent_view.DROP: lambda: self.guests.drop(action.guest),
            agent_view.STOP_GUEST: lambda: self.guests.shut_down(action.guest),
            agent_view.SEND_AWAY: lambda: self.migrations.send(
                action.guest, action.epoch, action.host
            ),
            agent_view.LEASE: lambda: self.guests.lease(action.guest, action.epoch),
            agent_view.EXIT: lambda: self.end(STOP),
            agent_view.POWER_OFF: lambda: self.end(STOP),
            agent_view.RENEW: self.renew,
        }
        handlers[action.kind]()

    def arm(self) -> None:
        """Arm the watchdog, unless that cannot be recorded."""
        try:
            self.feeder.arm(self.state)
        except OSError as exc:
            self.log_once(f"the watchdog is not armed: cannot write {exc.filename}: {exc.strerror}")

    def end(self, reason: str) -> None:
        """Stop the service."""
        self.feeder.disarm()
        self.exit_reason = reason

    def renew(self) -> None:
        """Start over, as after a boot of the host, because none of its guests runs."""
        state: AgentState = self.state.after_reboot()
        self.store.renew(state.boot)
        self.instances.clear()
        self.state = state


def _text(body: dict[str, object], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise errors.BadAnswer(f"the request has no {key}")
    return value
