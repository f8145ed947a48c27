"""Detect failures of running guests, from libvirt's states and events, their disks and their guest
agents. The results are reported; the leader decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from saltvirt import sanitize
from saltvirt.ha.agent.instances import DomainState
from saltvirt.ha.model.messages import (
    CRASHED,
    FAILED,
    FULL,
    IO_FAILED,
    PANICKED,
    RUNNING,
    SILENT,
    STOPPED,
    UNCLEAR,
    WATCHDOG,
    GuestStatus,
)
from saltvirt.host.connection import libvirt

# minimum duration of a failure: a host that loses its storage reports that first, and its guests
# have not failed; an unclear diagnosis is repeated
CLEAR_S = 10
# interval of queries to guest agents, and number of failed ones before one counts as silent
ASK_S = 10
MISSES = 3
_LONGEST = 200
# virDomainState: running, blocked, paused, crashed
_RUNS, _PAUSED, _CRASHED = (1, 2), 3, 6
# virDomainPausedReason
_BY_REASON = {5: IO_FAILED, 6: WATCHDOG, 10: PANICKED}
_NO_SPACE = 2  # virDomainDiskErrorCode
_RESET = 2  # virDomainEventWatchdogAction, of which the others
_OFF_ACTIONS = {3: "poweroff", 4: "shutdown"}

Do = Callable[..., bool]


class Domains(Protocol):
    """Access to libvirt's domains."""

    def domain(self, name: str) -> libvirt.virDomain | None:
        """Return libvirt's domain, or None."""

    def run_in_thread(
        self, kind: str, name: str, work: Callable[..., None], *parameters: object
    ) -> bool:
        """Run an action on a guest on a thread of its own, unless the same is running."""


@dataclass(frozen=True)
class _Case:
    """A guest since its last start. number: libvirt's ID of that start. kind: the failure that its
    state shows, since since_s; trouble, message: the diagnosis. heard_s: when its guest agent last
    answered; asked_s, missed: the last query, the queries without an answer. resets: when its
    watchdog reset it. note: how its start, or the guest, ended."""

    number: int = -1
    kind: str = ""
    since_s: float = 0
    trouble: str = ""
    message: str = ""
    heard_s: float | None = None
    asked_s: float = 0
    missed: int = 0
    resets: tuple[float, ...] = ()
    note: str = ""


@dataclass
class Health:
    """window_s: for how long resets are counted. agents: guest to the time in seconds for which its
    guest agent may be silent, for those to query. Its methods are thread-safe."""

    domains: Domains
    clock: Callable[[], float]
    window_s: float
    agents: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cases: dict[str, _Case] = {}
        self._guard = threading.Lock()

    # input from libvirt

    def update(self, domains: Mapping[str, DomainState], names: Collection[str]) -> None:
        """Apply libvirt's domains. names: the managed guests."""
        now_s = self.clock()
        for name in set(self._cases) - set(names):
            self._forget(name)
        for name in names:
            domain = domains.get(name)
            if domain is not None and domain.active:
                self._update_guest(name, domain, now_s)

    def _update_guest(self, name: str, domain: DomainState, now_s: float) -> None:
        case = self._cases.get(name, _Case())
        if case.number != domain.number:
            case = self._put(name, _Case(domain.number))
        kind = _kind(domain)
        if kind != case.kind:
            case = self._change(name, kind=kind, since_s=now_s, trouble="", message="")
        if kind and now_s - case.since_s >= CLEAR_S and case.trouble in ("", UNCLEAR):
            self._diagnose(name, kind)
        if domain.state not in _RUNS or not self.agents.get(name):
            self._change(name, heard_s=None, missed=0)
        elif now_s - case.asked_s >= ASK_S:
            self._ask(name, now_s)

    def _diagnose(self, name: str, kind: str) -> None:
        if kind == WATCHDOG:
            self._set_trouble(name, kind, "its watchdog fired and paused the guest")
        elif kind == PANICKED:
            self.domains.run_in_thread("diagnose", name, self._panic)
        else:
            if not self._cases.get(name, _Case()).trouble:
                self._set_trouble(name, UNCLEAR, "an I/O error without a reason from libvirt")
            self.domains.run_in_thread("diagnose", name, self._disks)

    def _panic(self, name: str) -> None:
        """Report a panic, unless the guest's memory is still being dumped."""
        dom = self.domains.domain(name)
        if dom is not None and dom.jobInfo()[0] == libvirt.VIR_DOMAIN_JOB_NONE:
            self._set_trouble(name, PANICKED, "its kernel panicked", PANICKED)

    def _disks(self, name: str) -> None:
        dom = self.domains.domain(name)
        if dom is None:
            return
        failed = dom.diskErrors()
        disks = ", ".join(sorted(failed))
        if failed and set(failed.values()) == {_NO_SPACE}:
            message = f"no space left for {disks}: free space, then run virsh resume {name}"
            self._set_trouble(name, FULL, message, IO_FAILED)
        else:
            message = f"I/O error of {disks}" if disks else "I/O error"
            self._set_trouble(name, IO_FAILED, message, IO_FAILED)

    def _ask(self, name: str, now_s: float) -> None:
        """Query the guest agent. A query that is still running when the next one is due has
        failed."""
        is_started = self.domains.run_in_thread("query the guest agent of", name, self._ping)
        with self._guard:
            case = self._cases.get(name, _Case())
            missed = case.missed + (0 if is_started else 1)
            self._cases[name] = replace(case, asked_s=now_s, missed=missed)

    def _ping(self, name: str) -> None:
        """Query the guest agent. Only the fact of an answer matters."""
        dom = self.domains.domain(name)
        if dom is None:
            return
        number = dom.ID()
        try:
            dom.getTime()
        except libvirt.libvirtError as exc:
            if exc.get_error_code() in _codes("AGENT_UNRESPONSIVE", "AGENT_UNSYNCED",
                                              "AGENT_COMMAND_TIMEOUT"):  # fmt: skip
                with self._guard:
                    case = self._cases.get(name, _Case())
                    self._cases[name] = replace(case, missed=case.missed + 1)
                return
            if exc.get_error_code() not in _codes("INTERNAL_ERROR", "AGENT_COMMAND_FAILED"):
                return
        if self._cases.get(name, _Case()).number == number:
            self._change(name, heard_s=self.clock(), missed=0)

    # input from actions and events

    def on_start(self, name: str) -> None:
        """Forget the previous start."""
        self._forget(name)

    def on_start_failed(self, name: str, exc: Exception) -> None:
        """Record why the start failed."""
        self._change(name, note=sanitize.one_line(f"the start failed: {exc}")[:_LONGEST])

    def on_watchdog(self, name: str, action: int) -> None:
        """Record that the guest's watchdog fired. QEMU runs the action of the definition."""
        now_s = self.clock()
        if action == _RESET:
            resets = self._cases.get(name, _Case()).resets
            self._change(name, resets=(*self._recent(resets), now_s), heard_s=None, missed=0)
        elif action in _OFF_ACTIONS:
            self._change(name, note=f"its watchdog fired: {_OFF_ACTIONS[action]}")

    def on_reboot(self, name: str) -> None:
        """Wait for the guest agent again after a reboot of the guest."""
        self._change(name, heard_s=None, missed=0)

    # output

    def annotate(self, statuses: Mapping[str, GuestStatus]) -> dict[str, GuestStatus]:
        """Return the statuses with the detected failures."""
        return {name: self._annotate_guest(name, status) for name, status in statuses.items()}

    def _annotate_guest(self, name: str, status: GuestStatus) -> GuestStatus:
        case = self._cases.get(name)
        if case is None:
            return status
        if status.state in (CRASHED, FAILED, STOPPED):
            return replace(status, detail=case.note)
        if status.state != RUNNING:
            return status
        trouble, message = case.trouble, case.message
        limit_s = self.agents.get(name, 0)
        if not trouble and limit_s and self._is_silent(case, limit_s):
            trouble, message = SILENT, f"its guest agent did not answer for {limit_s} s"
        resets = len(self._recent(case.resets))
        return replace(status, trouble=trouble, detail=message, resets=resets)

    def _is_silent(self, case: _Case, limit_s: int) -> bool:
        has_answered = case.heard_s is not None and case.missed >= MISSES
        return has_answered and self.clock() - (case.heard_s or 0) >= limit_s

    def _recent(self, resets: tuple[float, ...]) -> tuple[float, ...]:
        now_s = self.clock()
        return tuple(at_s for at_s in resets if now_s - at_s < self.window_s)

    # internal

    def _set_trouble(self, name: str, trouble: str, message: str, kind: str | None = None) -> None:
        """Record a diagnosis. kind: the state that the guest must still have, so that the diagnosis
        applies to the same failure."""
        case = self._cases.get(name, _Case())
        if kind is None or case.kind == kind:
            self._change(name, trouble=trouble, message=sanitize.one_line(message)[:_LONGEST])

    def _put(self, name: str, case: _Case) -> _Case:
        with self._guard:
            self._cases[name] = case
            return case

    def _change(self, name: str, **fields: object) -> _Case:
        with self._guard:
            case = replace(self._cases.get(name, _Case()), **fields)  # type: ignore[arg-type]
            self._cases[name] = case
            return case

    def _forget(self, name: str) -> None:
        with self._guard:
            self._cases.pop(name, None)


def _kind(domain: DomainState) -> str:
    """Return the failure that the state of a running guest shows. A guest that was paused by an
    operator has none."""
    if domain.state == _CRASHED:
        return PANICKED
    return _BY_REASON.get(domain.reason, "") if domain.state == _PAUSED else ""


def _codes(*names: str) -> tuple[int | None, ...]:
    """Return the error codes that this version of libvirt has."""
    return tuple(getattr(libvirt, f"VIR_ERR_{name}", None) for name in names)
