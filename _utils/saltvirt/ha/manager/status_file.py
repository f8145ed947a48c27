"""The last report of the engine, in a file that it replaces regularly."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from saltvirt import errors
from saltvirt.ha.manager import files
from saltvirt.ha.model.registry import Registry
from saltvirt.ha.model.view import HostBinding, SavedMasterState
from saltvirt.schema import Message, optional, transient
from saltvirt.system import file_lock

# if the report is older, the engine hangs
STALE_S = 15
_STARTING = "the engine virt_ha has just started"
DISARMED = "high availability is disarmed: run salt-run virt.ha_arm"


@dataclass(frozen=True)
class HostReport(Message):
    """A host as the engine knows it. heard_s: seconds since it was heard; None: never. fence: the
    result of the last attempt to fence it. differs: in what its agent differs from this master."""

    boot: int = 0
    heard_s: float | None = None
    armed: bool = False
    phase: str = ""
    storage_silent_s: float | None = None
    fence: str = optional("")
    differs: str = optional("")


@dataclass(frozen=True)
class ChangeRecord(Message):
    """A decision. at_s: its wall clock time."""

    at_s: float
    kind: str
    name: str
    old: str
    new: str
    reason: str


@dataclass(frozen=True)
class LossReport(Message):
    """Where the guests of a host would be started, and why others would not."""

    placements: dict[str, str] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SimulationReport(Message):
    """Data that is large and changes rarely: what the loss of hosts would mean, and guests that can
    run on one host only. It has a file of its own, which is written only if it changes."""

    losses: dict[str, LossReport] = field(default_factory=dict)
    bindings: dict[str, HostBinding] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineReport(Message):
    """at_s: wall clock time of the report; clock_s: the same by the engine's clock, 0 from an older
    version. leading: this master leads; leader: the leader that hosts report. settled: a majority
    stores all decisions. heard: members that were heard recently; needed: the majority. problem:
    what prevents the engine from acting. warnings: what should be repaired. settings: the digest of
    its settings. simulation: read from its own file."""

    at_s: float
    master: str
    leading: bool = False
    leader: str = ""
    settled: bool = False
    heard: int = 0
    needed: int = 0
    hosts: dict[str, HostReport] = field(default_factory=dict)
    changes: tuple[ChangeRecord, ...] = ()
    problem: str = ""
    warnings: tuple[str, ...] = optional(())
    settings: str = ""
    clock_s: float = optional(0)
    simulation: SimulationReport = transient(SimulationReport())


@dataclass(frozen=True)
class EngineStatus:
    """The engine as verbs use it: why it is not reliable, or nothing; its report, and its
    registry."""

    problem: str
    report: EngineReport
    registry: Registry

    def hears(self, host: str, within_s: float) -> bool:
        """Whether the host was heard recently."""
        if self.problem or host not in self.report.hosts:
            return False
        heard_s = self.report.hosts[host].heard_s
        return heard_s is not None and heard_s < within_s


def boot_time() -> float:
    """Return the engine's clock, which cannot be set. It continues while the machine sleeps, so
    that a lead that was granted before does not count afterwards."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def report_path(opts: file_lock.Opts) -> Path:
    """Return the file of the EngineReport."""
    return files.folder(opts) / "engine.json"


def simulation_path(opts: file_lock.Opts) -> Path:
    """Return the file of the SimulationReport."""
    return files.folder(opts) / "simulation.json"


def state_path(opts: file_lock.Opts) -> Path:
    """Return the file of the saved state."""
    return files.folder(opts) / "state.json"


def lock_path(opts: file_lock.Opts) -> Path:
    """Return the file that the running engine locks."""
    return files.folder(opts) / "engine.lock"


def load(opts: file_lock.Opts) -> EngineStatus:
    """Return the EngineStatus of this master. Raises OperationFailed for a damaged file."""
    saved = files.read(state_path(opts), SavedMasterState)
    registry = saved.registry if saved else Registry()
    if not file_lock.is_taken(lock_path(opts)):
        problem = "the engine virt_ha is not running on this master: guests are not protected"
        return EngineStatus(problem, EngineReport(0, ""), registry)
    try:
        report = files.read(report_path(opts), EngineReport)
        simulation = files.read(simulation_path(opts), SimulationReport)
    except errors.OperationFailed as exc:
        return EngineStatus(exc.text, EngineReport(0, ""), registry)
    if report is None:
        return EngineStatus(_STARTING, EngineReport(0, ""), registry)
    report = replace(report, simulation=simulation or SimulationReport())
    # the wall clock may be set
    age_s = boot_time() - report.clock_s if report.clock_s else time.time() - report.at_s
    problem = report.problem
    if age_s < 0:  # the report is from before the boot of this machine
        return EngineStatus(_STARTING, EngineReport(0, ""), registry)
    if age_s > STALE_S:
        problem = f"the engine virt_ha has not reported for {age_s:.0f} s: it hangs"
    return EngineStatus(problem, report, registry)
