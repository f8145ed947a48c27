"""What the hosts have room for, asked of their minions at times, beside the engine."""

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

# and while one of them has told nothing yet
EVERY_S, FIRST_S = 30, 5

# what asks hosts: each Host as it comes, for one that is silent holds up the others
Ask = Callable[[Collection[str]], Iterable[facts.Host]]


def refresh_path(opts: file_lock.Opts) -> Path:
    """The file by whose time others have the hosts asked again at once."""
    return files.folder(opts) / "ask"


def cache_path(opts: file_lock.Opts) -> Path:
    """The file of what hosts told last."""
    return files.folder(opts) / "rooms.json"


@dataclass(frozen=True)
class InventoryFile(Message):
    """The file: what each host answered, as it came."""

    hosts: dict[str, Any] = field(default_factory=dict)


def read(path: Path) -> dict[str, Any]:
    """What hosts told last; nothing where that cannot be read: they tell it again."""
    try:
        cached = files.read(path, InventoryFile)
    except errors.OperationFailed as exc:
        log.warning("%s", exc.text)
        return {}
    return cached.hosts if cached else {}


def write(path: Path, hosts: dict[str, Any]) -> None:
    """What hosts told is in the file. What cannot be written is asked again."""
    try:
        files.write_volatile(path, InventoryFile(hosts))
    except (OSError, TypeError, ValueError) as exc:
        log.warning("the hosts' room is not written down: %s", exc)


class InventoryPoller:
    """The last that each host told of itself. A host that is silent keeps what it told: nothing is
    placed on one whose agent is not heard. again: as ``again`` has it. known: what they
    told an engine before this one: guests are placed by that while no minion answers."""

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
        """Asks from now on, in a thread of its own."""
        threading.Thread(target=self._run, name="rooms", daemon=True).start()

    def end(self) -> None:
        """Asks no more."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            refreshed_ns = self._refresh_ns()
            self.poll()
            for _ in range(EVERY_S if set(self._members) <= set(self._answered_s) else FIRST_S):
                if self._stop.wait(1) or self._refresh_ns() != refreshed_ns:
                    break

    def _refresh_ns(self) -> int:
        """When others wanted it last, or 0."""
        try:
            return self._refresh_file.stat().st_mtime_ns if self._refresh_file else 0
        except OSError:
            return 0

    def poll(self) -> None:
        """Asks once."""
        began_s = self._clock()
        try:
            for host in self._ask(self._members):
                with self._lock:
                    self._latest[host.name], self._answered_s[host.name] = host, began_s
                    self._joined = None
        except errors.VirtError as exc:
            log.warning("the hosts' room is not known anew: %s", exc.text)
        except Exception:
            log.exception("the hosts' room")

    @property
    def hosts(self) -> dict[str, facts.Host]:
        """By name, each knowing what the others promise of storage that they share."""
        with self._lock:
            if self._joined is None:
                joined_hosts = account.joined(
                    sorted(self._latest.values(), key=lambda item: item.name)
                )
                self._joined = {host.name: host for host in joined_hosts}
            return self._joined

    @property
    def answered_s(self) -> dict[str, float]:
        """When each host was asked, of those that answered: by the engine's clock."""
        with self._lock:
            return dict(self._answered_s)
