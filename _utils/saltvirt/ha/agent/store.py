"""Files of the agent: one folder survives a power failure, another one a restart of the agent.

A file is replaced atomically, and is on disk before it counts. A damaged file ends the agent,
because it may have contained a commitment.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors
from saltvirt.ha.model.agent_view import AgentState, SavedAgentState, initial_state
from saltvirt.ha.model.messages import WORKING, FenceVote, HostState
from saltvirt.ha.model.registry import Registry
from saltvirt.schema import AnyMessage, Message
from saltvirt.system import atomic_file, file_lock


@dataclass(frozen=True)
class SavedFile(Message):
    """A ``SavedAgentState`` in its file."""

    fence_votes: dict[str, FenceVote]
    host_states: dict[str, HostState]
    term: int
    leader: str
    claim: int
    pending: Registry
    registry: Registry


@dataclass(frozen=True)
class BootFile(Message):
    """boot_id: identifies the boot of the kernel; boot: its number, which increases with each
    boot."""

    boot_id: str
    boot: int


@dataclass(frozen=True)
class Runtime(Message):
    """The part of an AgentState that survives the agent, but not its host. lease_from_s: by the
    clock of this boot. opened: the watchdog's device is open, or was about to be opened."""

    boot_id: str
    boot: int
    seq: int = 0
    believed: bool = False
    unpledged: int = 0
    tried: dict[str, int] = field(default_factory=dict)
    phase: str = WORKING
    phase_seq: int = 0
    lease_from_s: float | None = None
    feed_lease_s: float | None = None
    watchdog_s: float | None = None
    lead_lease_s: float | None = None
    opened: bool = False


class AgentStore:
    """state: a folder on disk; run: a folder in memory. boot_id: of this boot of the kernel.
    opened: see Runtime; ``save_runtime`` writes it."""

    def __init__(self, state: str, run: str, boot_id: str) -> None:
        self.state_folder, self.run_folder, self.boot_id = state, run, boot_id
        self.opened = False
        self._lock: int | None = None
        self._runtime: Runtime | None = None

    def lock(self) -> None:
        """Raise OperationFailed if another agent is running."""
        self._make_folders()
        path = f"{self.run_folder}/agent.lock"
        self._lock = file_lock.acquire(path)
        if self._lock is None:
            raise errors.OperationFailed(f"another agent has locked {path}")

    def _make_folders(self) -> None:
        for folder in (self.state_folder, self.run_folder):
            os.makedirs(folder, 0o700, exist_ok=True)

    def unlock(self) -> None:
        """Allow another agent to run."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def begin(self, host: str, now_s: float) -> tuple[AgentState, float | None]:
        """Return the initial state, and since when the lease from before a restart is held, or
        None. Raises BadAnswer for a damaged file, OSError."""
        self._make_folders()
        stored = self._read(self._saved_path, SavedFile)
        saved = _convert(stored, SavedAgentState) if stored else SavedAgentState()
        old = self._read(self._runtime_path, Runtime)
        state = initial_state(host, self._boot(old), saved, now_s)
        if old is None or (old.boot_id, old.boot) != (self.boot_id, state.boot):
            return state, None
        shared = (
            "seq", "believed", "unpledged", "tried", "phase", "phase_seq", "feed_lease_s",
            "watchdog_s", "lead_lease_s",
        )  # fmt: skip
        before = dataclasses.replace(state, **{name: getattr(old, name) for name in shared})
        self._runtime, self.opened = old, old.opened
        return before.after_restart(now_s), old.lease_from_s

    def save(self, saved: SavedAgentState) -> None:
        """Write the state to disk. Raises OSError."""
        atomic_file.write(self._saved_path, text(_convert(saved, SavedFile)))

    def save_runtime(self, state: AgentState) -> None:
        """Write what a restart of the agent needs. Raises OSError if a field other than the time
        has changed."""
        excluded = ("boot_id", "opened")
        names = [item.name for item in dataclasses.fields(Runtime) if item.name not in excluded]
        values = {name: getattr(state, name) for name in names}
        new = Runtime(self.boot_id, **values, opened=self.opened)
        old = self._runtime
        try:
            atomic_file.write(self._runtime_path, text(new), durable=False)
        except OSError:
            if old is None or _without_time(old) != _without_time(new):
                raise
        self._runtime = new

    def renew(self, boot: int) -> None:
        """Set the number of this boot."""
        atomic_file.write(self._boot_path, text(BootFile(self.boot_id, boot)))

    def _boot(self, runtime: Runtime | None) -> int:
        """Return the number of this boot. The first one is the time, so that a reinstalled host
        begins above what other machines know. If the file was lost during this boot, keep the
        number: the host's guests may run."""
        stored = self._read(self._boot_path, BootFile)
        if stored is not None and stored.boot_id == self.boot_id:
            return stored.boot
        if runtime is not None and runtime.boot_id == self.boot_id:
            boot = runtime.boot
        else:
            boot = max(int(time.time()), stored.boot + 1 if stored else 1)
        self.renew(boot)
        return boot

    def check(self) -> None:
        """Raise BadAnswer or OSError if a file cannot be read."""
        self._read(self._saved_path, SavedFile)
        self._read(self._boot_path, BootFile)
        self._read(self._runtime_path, Runtime)

    def may_be_armed(self) -> bool:
        """Whether an agent of this boot may have left its watchdog armed; if unknown, True."""
        try:
            old = self._read(self._runtime_path, Runtime)
        except (errors.BadAnswer, OSError):
            return True
        return old is not None and old.boot_id == self.boot_id and old.opened

    def _read(self, path: str, kind: type[AnyMessage]) -> AnyMessage | None:
        data = read(path)
        return None if data is None else kind.from_answer(data, path)

    @property
    def _saved_path(self) -> str:
        return f"{self.state_folder}/state.json"

    @property
    def _boot_path(self) -> str:
        return f"{self.state_folder}/boot.json"

    @property
    def _runtime_path(self) -> str:
        return f"{self.run_folder}/runtime.json"


def _convert(source: Any, kind: Any) -> Any:
    return kind(**{item.name: getattr(source, item.name) for item in dataclasses.fields(kind)})


def text(fact: Message) -> bytes:
    return json.dumps(fact.to_answer()).encode()


def _without_time(runtime: Runtime) -> Runtime:
    return dataclasses.replace(runtime, seq=0, lease_from_s=None)


def read(path: str) -> Any:
    """Return the JSON of a file; None if the file does not exist. Raises BadAnswer, OSError."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise errors.BadAnswer(
            f"{path} is damaged: {exc}. It may have contained a commitment: disarm high "
            "availability, shut down the guests of this host, then remove the file"
        ) from exc
