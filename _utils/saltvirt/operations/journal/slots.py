"""Limit the concurrent operations of this master: deployments; migrations, in total and from or to
each host; backups, from each host and to each target.

The limits are ``virt:inits_at_once``, and ``at_once`` and ``at_once_per_host`` of
``virt:migration``, in the master's configuration. Further operations wait, at most
``virt:queue_timeout`` seconds. A slot is a locked file, which names its process and is released
when that ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from saltvirt import settings, units
from saltvirt.system import file_lock

# called with the reason for the wait
Notify = Callable[[str], None]

AT_ONCE = 8
PER_HOST = 2
INITS = 8
# a deployment without progress gives up its slot after this time; one whose host reports progress
# after this share of virt:queue_timeout
QUIET_S = 120
_HOLD_SHARE = 0.5


def limits(opts: file_lock.Opts) -> tuple[int, int]:
    """Return (maximum in total, maximum for each host) from the master's configuration."""
    get = settings.of_master(opts)
    max_total = settings.integer(get, "migration:at_once", AT_ONCE)
    return max_total, settings.integer(get, "migration:at_once_per_host", PER_HOST)


# the slots of an operation; close() releases them
Slots = contextlib.ExitStack


@dataclass(frozen=True)
class _Limit:
    """At most ``number`` concurrent operations. kind: name of the slots. noun: the operation.
    setting: its key. direction: such as " from hv1", if each host or target has its own limit."""

    kind: str
    number: int
    noun: str
    setting: str
    direction: str = ""

    @property
    def reason(self) -> str:
        """Why further operations wait."""
        running = f"{units.pluralize(self.number, self.noun)}{self.direction}"
        return f"{running} {'is' if self.number == 1 else 'are'} under way ({self.setting})"

    def paths(self, folder: Path) -> list[Path]:
        """Return the lock files of the slots."""
        return [folder / f"{self.kind}.{index}" for index in range(self.number)]


def migrating(
    opts: file_lock.Opts,
    hosts: Iterable[str],
    notify: Notify,
    purpose: str = "a migration",
) -> contextlib.AbstractContextManager[Slots]:
    """Hold one of all migration slots and one of each host for the block; wait for them.

    opts: the master's configuration. notify: called once with the reason if it has to wait.
    purpose: the operation, for messages. Raises OperationFailed after the timeout.
    """
    max_total, max_per_host = limits(opts)
    setting = "virt:migration:at_once"
    total = _Limit("all", max_total, "migration", setting)
    per_host = [
        _Limit(
            f"of-{host}", max_per_host, "migration", f"{setting}_per_host", f" from or to {host}"
        )
        for host in dict.fromkeys(hosts)
    ]
    return _hold(opts, [total, *per_host], notify, purpose)


def deploying(
    opts: file_lock.Opts, notify: Notify, purpose: str = "a deployment"
) -> contextlib.AbstractContextManager[Slots]:
    """Hold a slot for a deployment; wait for it. More concurrent deployments would slow down the
    hosts and Salt until answers are lost."""
    number = settings.integer(settings.of_master(opts), "inits_at_once", INITS)
    return _hold(
        opts, [_Limit("init", number, "deployment", "virt:inits_at_once")], notify, purpose
    )


def backing_up(
    opts: file_lock.Opts,
    hosts: Mapping[str, int],
    targets: Mapping[str, int],
    notify: Notify,
    purpose: str = "a backup",
) -> contextlib.AbstractContextManager[Slots]:
    """Hold a slot of each host and of each target for the block; wait for them. hosts, targets:
    each with its maximum."""
    setting = "virt:backup:at_once_per"
    return _hold(
        opts,
        [
            *(
                _Limit(f"backup-of-{host}", number, "backup", f"{setting}_host", f" from {host}")
                for host, number in hosts.items()
            ),
            *(
                _Limit(f"backup-to-{name}", number, "backup", f"{setting}_target", f" to {name}")
                for name, number in targets.items()
            ),
        ],
        notify,
        purpose,
    )


def max_hold_s(opts: file_lock.Opts) -> float:
    """Return for how many seconds a deployment keeps its slot while its host is working."""
    return file_lock.queue_timeout_s(opts) * _HOLD_SHARE


@contextlib.contextmanager
def _hold(
    opts: file_lock.Opts, limits: Sequence[_Limit], notify: Notify, purpose: str
) -> Iterator[Slots]:
    """Hold one slot of each limit for the block; hold none while it waits, so that waiting
    operations do not block others."""
    folder = Path(opts["cachedir"]) / "virt" / "slots"
    folder.mkdir(parents=True, exist_ok=True)
    reached: list[_Limit] = []

    def acquire() -> Slots | None:
        slots, limit = _take(folder, limits, purpose)
        if limit is None:
            return slots
        if not reached:
            notify(limit.reason)
        reached[:] = [limit]
        return None

    def wait_reason() -> str:
        [limit] = reached
        return f"{limit.reason}: {'; '.join(map(file_lock.owner, limit.paths(folder)))}"

    with file_lock.wait(opts, acquire, wait_reason) as slots:
        yield slots


def _take(folder: Path, limits: Iterable[_Limit], purpose: str) -> tuple[Slots, _Limit | None]:
    """Return (slots, None), or (no slots, the limit that is reached)."""
    with Slots() as slots:
        for limit in limits:
            taken = (file_lock.take(path, purpose) for path in limit.paths(folder))
            handle = next((handle for handle in taken if handle is not None), None)
            if handle is None:
                return Slots(), limit
            slots.callback(os.close, handle)
        return slots.pop_all(), None
