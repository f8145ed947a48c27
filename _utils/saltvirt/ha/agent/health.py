"""What ails guests that are alive: seen in libvirt's states and events, asked of their disks and
their guest agents. It is told; what follows is the leader's to decide."""

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

# so long it must have lasted: a host that loses its storage tells that first, and it is no fault of
# its guests; one that is unclear is asked again
CLEAR_S = 10
# a guest agent is asked so often, and has missed a question that it did not answer for so long
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
    """What has libvirt's domains."""

    def domain(self, name: str) -> libvirt.virDomain | None:
        """libvirt's, None where it has none of the name."""

    def run_in_thread(
        self, kind: str, name: str, work: Callable[..., None], *parameters: object
    ) -> bool:
        """Something with a guest, on a thread of its own, unless the same is at work."""


@dataclass(frozen=True)
class _Case:
    """One guest since its last start. number: libvirt's, of that start. kind: what its state shows,
    since_s; trouble, words: what that is. heard_s: when its agent last answered; asked_s, missed.
    resets: when its watchdog has reset it. note: how its start, or itself, ended."""

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
    """window_s: resets are counted for so long. agents: {guest: for how long its agent may be
    silent}, of those that are to be asked. Its methods may be called by any thread."""

    domains: Domains
    clock: Callable[[], float]
    window_s: float
    agents: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cases: dict[str, _Case] = {}
        self._guard = threading.Lock()

    # what is seen

    def update(self, domains: Mapping[str, DomainState], names: Collection[str]) -> None:
        """libvirt has these, of which the names are guests of high availability."""
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
            case = self._change(name, kind=kind, since_s=now_s, trouble="", words="")
        if kind and now_s - case.since_s >= CLEAR_S and case.trouble in ("", UNCLEAR):
            self._diagnose(name, kind)
        if domain.state not in _RUNS or not self.agents.get(name):
            self._change(name, heard_s=None, missed=0)
        elif now_s - case.asked_s >= ASK_S:
            self._ask(name, now_s)

    def _diagnose(self, name: str, kind: str) -> None:
        if kind == WATCHDOG:
            self._set_trouble(name, kind, "its watchdog fired, and paused it")
        elif kind == PANICKED:
            self.domains.run_in_thread("look at", name, self._panic)
        else:
            if not self._cases.get(name, _Case()).trouble:
                self._set_trouble(name, UNCLEAR, "its I/O failed: libvirt does not say why")
            self.domains.run_in_thread("look at", name, self._disks)

    def _panic(self, name: str) -> None:
        """Of one whose memory is being dumped nothing is said yet."""
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
            message = f"no space is left for {disks}: make room, then virsh resume {name}"
            self._set_trouble(name, FULL, message, IO_FAILED)
        else:
            message = f"I/O of {disks} failed" if disks else "its I/O failed"
            self._set_trouble(name, IO_FAILED, message, IO_FAILED)

    def _ask(self, name: str, now_s: float) -> None:
        """A question that has not ended when the next is due was missed."""
        is_started = self.domains.run_in_thread("ask the agent of", name, self._ping)
        with self._guard:
            case = self._cases.get(name, _Case())
            missed = case.missed + (0 if is_started else 1)
            self._cases[name] = replace(case, asked_s=now_s, missed=missed)

    def _ping(self, name: str) -> None:
        """What the agent answers is nothing to us."""
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

    # what it is told

    def on_start(self, name: str) -> None:
        """It is started anew."""
        self._forget(name)

    def on_start_failed(self, name: str, exc: Exception) -> None:
        """Its start failed."""
        self._change(name, note=sanitize.one_line(f"it did not start: {exc}")[:_LONGEST])

    def on_watchdog(self, name: str, action: int) -> None:
        """Its watchdog did, and QEMU does what its definition says."""
        now_s = self.clock()
        if action == _RESET:
            resets = self._cases.get(name, _Case()).resets
            self._change(name, resets=(*self._recent(resets), now_s), heard_s=None, missed=0)
        elif action in _OFF_ACTIONS:
            self._change(name, note=f"its watchdog fired: {_OFF_ACTIONS[action]}")

    def on_reboot(self, name: str) -> None:
        """Its agent has not begun yet."""
        self._change(name, heard_s=None, missed=0)

    # what it tells

    def annotate(self, statuses: Mapping[str, GuestStatus]) -> dict[str, GuestStatus]:
        """The guests with what ails them."""
        return {name: self._annotate_guest(name, status) for name, status in statuses.items()}

    def _annotate_guest(self, name: str, status: GuestStatus) -> GuestStatus:
        case = self._cases.get(name)
        if case is None:
            return status
        if status.state in (CRASHED, FAILED, STOPPED):
            return replace(status, seen=case.note)
        if status.state != RUNNING:
            return status
        trouble, message = case.trouble, case.message
        limit_s = self.agents.get(name, 0)
        if not trouble and limit_s and self._is_silent(case, limit_s):
            trouble, message = SILENT, f"its agent was silent for {limit_s} s"
        resets = len(self._recent(case.resets))
        return replace(status, trouble=trouble, seen=message, resets=resets)

    def _is_silent(self, case: _Case, limit_s: int) -> bool:
        has_answered = case.heard_s is not None and case.missed >= MISSES
        return has_answered and self.clock() - (case.heard_s or 0) >= limit_s

    def _recent(self, resets: tuple[float, ...]) -> tuple[float, ...]:
        now_s = self.clock()
        return tuple(at_s for at_s in resets if now_s - at_s < self.window_s)

    # its own

    def _set_trouble(self, name: str, trouble: str, message: str, kind: str | None = None) -> None:
        """kind: what its state must show still, or it is another one's."""
        case = self._cases.get(name, _Case())
        if kind is None or case.kind == kind:
            self._change(name, trouble=trouble, words=sanitize.one_line(message)[:_LONGEST])

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
    """What the state of one that is alive shows. One that a person has paused is well."""
    if domain.state == _CRASHED:
        return PANICKED
    return _BY_REASON.get(domain.reason, "") if domain.state == _PAUSED else ""


def _codes(*names: str) -> tuple[int | None, ...]:
    """Those that this libvirt knows."""
    return tuple(getattr(libvirt, f"VIR_ERR_{name}", None) for name in names)
