"""Poll the hosts' capacity through their minions, independent of the engine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltvirt import errors
from saltvirt.ha.manager import files
from saltvirt.placement import account, facts
from saltvirt.schema import Message
from saltvirt.system import file_lock

log = logging.getLogger(__name__)

# polling intervals in seconds: usual, and until each host has reported
EVERY_S, FIRST_S = 30, 5

# asks hosts and yields each Host as it arrives, because a silent host delays the others
Ask = Callable[[Collection[str]], Iterable[facts.Host]]


def refresh_path(opts: file_lock.Opts) -> Path:
    """Return the file whose modification time requests a poll."""
    return files.folder(opts) / "ask"


def cache_path(opts: file_lock.Opts) -> Path:
    """Return the file with the last reports of the hosts."""
    return files.folder(opts) / "capacity.json"


@dataclass(frozen=True)
class InventoryFile(Message):
    """The file: the answer of each host."""

    hosts: dict[str, Any] = field(default_factory=dict)


def read(path: Path) -> dict[str, Any]:
    """Return the last reports of the hosts; empty if they cannot be read, because the hosts report
    again."""
    try:
        cached = files.read(path, InventoryFile)
    except errors.OperationFailed as exc:
        log.warning("%s", exc.text)
        return {}
    return cached.hosts if cached else {}


def write(path: Path, hosts: dict[str, Any]) -> None:
    """Save the reports of the hosts. An error is logged: the hosts are polled again."""
    try:
        files.write_volatile(path, InventoryFile(hosts))
    except (OSError, TypeError, ValueError) as exc:
        log.warning("cannot save the capacity of the hosts: %s", exc)


class InventoryPoller:
    """The last report of each host. A silent host keeps its last report, because no guest is placed
    on a host whose agent is silent. refresh_file: see refresh_path. cached: the reports to a
    previous engine, used for placement while no minion answers."""

    def __init__(
        self,
        ask: Ask,
        members: Collection[str],
        clock: Callable[[], float],
        refresh_file: Path | None = None,
        cached: Iterable[facts.Host] = (),
    ) -> None:
        self._ask, self._members, self._clock = ask, tuple(members), clock
        self._refresh_file = refresh_file
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._latest = {host.name: host for host in cached if host.name in self._members}
        self._joined: dict[str, facts.Host] | None = None
        self._answered_s: dict[str, float] = {}

    def begin(self) -> None:
        """Start to poll, in a thread of its own."""
        threading.Thread(target=self._run, name="capacity", daemon=True).start()

    def end(self) -> None:
        """Stop polling."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            refreshed_ns = self._refresh_ns()
            self.poll()
            for _ in range(EVERY_S if set(self._members) <= set(self._answered_s) else FIRST_S):
                if self._stop.wait(1) or self._refresh_ns() != refreshed_ns:
                    break

    def _refresh_ns(self) -> int:
        """Return when a poll was last requested, or 0."""
        try:
            return self._refresh_file.stat().st_mtime_ns if self._refresh_file else 0
        except OSError:
            return 0

    def poll(self) -> None:
        """Poll once."""
        began_s = self._clock()
        try:
            for host in self._ask(self._members):
                with self._lock:
                    self._latest[host.name], self._answered_s[host.name] = host, began_s
                    self._joined = None
        except errors.VirtError as exc:
            log.warning("cannot update the capacity of the hosts: %s", exc.text)
        except Exception:
            log.exception("cannot update the capacity of the hosts")

    @property
    def hosts(self) -> dict[str, facts.Host]:
        """The hosts by name, with what other hosts promise of shared storage."""
        with self._lock:
            if self._joined is None:
                joined_hosts = account.joined(
                    sorted(self._latest.values(), key=lambda item: item.name)
                )
                self._joined = {host.name: host for host in joined_hosts}
            return self._joined

    @property
    def answered_s(self) -> dict[str, float]:
        """When each host that answered was asked, by the engine's clock."""
        with self._lock:
            return dict(self._answered_s)
