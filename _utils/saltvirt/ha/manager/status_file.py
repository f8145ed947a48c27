"""What the engine saw last, for those who ask: a file that it replaces at times."""

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

# the engine writes it more often than that, or it hangs
STALE_S = 15
_STARTING = "the engine virt_ha has begun right now"
DISARMED = "high availability is disarmed: salt-run virt.ha_arm"


@dataclass(frozen=True)
class HostReport(Message):
    """A host as the engine sees it. heard_s: how long ago it was heard; None: never. fence: how the
    last attempt to fence it ended. differs: in what its agent is not like this master."""

    boot: int = 0
    heard_s: float | None = None
    armed: bool = False
    phase: str = ""
    storage_silent_s: float | None = None
    fence: str = optional("")
    differs: str = optional("")


@dataclass(frozen=True)
class ChangeRecord(Message):
    """One decision, and when it was made, in seconds of the clock on the wall."""

    at_s: float
    what: str
    name: str
    old: str
    new: str
    why: str


@dataclass(frozen=True)
class LossReport(Message):
    """Where the guests of a host would go, and why others would go nowhere."""

    moved: dict[str, str] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SimulationReport(Message):
    """What is large and changes seldom: what the loss of hosts would mean, and guests that can run
    on one host alone. It has a file of its own, which is written when any of it changes."""

    losses: dict[str, LossReport] = field(default_factory=dict)
    tied: dict[str, HostBinding] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineReport(Message):
    """at_s: when it was written, by the clock on the wall; clock_s: by the engine's own, 0 by an
    engine of a version before. leading: this master has the lead; leader: who has it by what hosts
    say. settled: a majority keeps all that was decided. heard: members that were heard lately;
    needed: so many are a majority. problem: what is in its way. warnings: what is to be mended, and
    is not. settings: the digest of those that it goes by. outlook: read from its own file.
    """

    at_s: float
    master: str
    leading: bool = False
    leader: str = ""
    settled: bool = False
    heard: int = 0
    needed: int = 0
    hosts: dict[str, HostReport] = field(default_factory=dict)
    decided: tuple[ChangeRecord, ...] = ()
    problem: str = ""
    warnings: tuple[str, ...] = optional(())
    settings: str = ""
    clock_s: float = optional(0)
    outlook: SimulationReport = transient(SimulationReport())


@dataclass(frozen=True)
class EngineStatus:
    """The engine from outside: why it cannot be relied on, or nothing; what it saw, and the
    registry that it has."""

    problem: str
    report: EngineReport
    registry: Registry

    def hears(self, host: str, within_s: float) -> bool:
        """Whether the host was heard lately."""
        if self.problem or host not in self.report.hosts:
            return False
        heard_s = self.report.hosts[host].heard_s
        return heard_s is not None and heard_s < within_s


def boot_time() -> float:
    """The engine's clock, which nobody sets. It goes on while the machine sleeps: a lead that was
    granted before is not taken for granted after."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def report_path(opts: file_lock.Opts) -> Path:
    """The file."""
    return files.folder(opts) / "engine.json"


def simulation_path(opts: file_lock.Opts) -> Path:
    """The file of the OutlookSeen."""
    return files.folder(opts) / "outlook.json"


def state_path(opts: file_lock.Opts) -> Path:
    """What the engine must not forget."""
    return files.folder(opts) / "kept.json"


def lock_path(opts: file_lock.Opts) -> Path:
    """Held by the engine that runs."""
    return files.folder(opts) / "engine.lock"


def load(opts: file_lock.Opts) -> EngineStatus:
    """The Engine of this master. Raises OperationFailed for a damaged file."""
    saved = files.read(state_path(opts), SavedMasterState)
    registry = saved.registry if saved else Registry()
    if not file_lock.is_taken(lock_path(opts)):
        problem = "the engine virt_ha does not run on this master: nothing is guarded"
        return EngineStatus(problem, EngineReport(0, ""), registry)
    try:
        report = files.read(report_path(opts), EngineReport)
        simulation = files.read(simulation_path(opts), SimulationReport)
    except errors.OperationFailed as exc:
        return EngineStatus(exc.text, EngineReport(0, ""), registry)
    if report is None:
        return EngineStatus(_STARTING, EngineReport(0, ""), registry)
    report = replace(report, outlook=simulation or SimulationReport())
    # a clock on the wall may be set
    age_s = boot_time() - report.clock_s if report.clock_s else time.time() - report.at_s
    problem = report.problem
    if age_s < 0:  # it is of before this machine's boot
        return EngineStatus(_STARTING, EngineReport(0, ""), registry)
    if age_s > STALE_S:
        problem = f"the engine virt_ha has written nothing for {age_s:.0f} s: it hangs"
    return EngineStatus(problem, report, registry)
