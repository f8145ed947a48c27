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
from collections.abc import Callable, Iterable, Iterator, Mapping
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
_BACKUP_OF, _BACKUP_TO = "backup-of-", "backup-to-"


def limits(opts: file_lock.Opts) -> tuple[int, int]:
    """Return (maximum in total, maximum for each host) from the master's configuration."""
    get = settings.of_master(opts)
    max_total = settings.integer(get, "migration:at_once", AT_ONCE)
    return max_total, settings.integer(get, "migration:at_once_per_host", PER_HOST)


class Slots:
    """The slots of one operation."""

    def __init__(self, handles: Iterable[int]) -> None:
        self._handles = list(handles)

    def free(self) -> None:
        """Release the slots."""
        while self._handles:
            os.close(self._handles.pop())


@contextlib.contextmanager
def migrating(
    opts: file_lock.Opts,
    hosts: Iterable[str],
    notify: Notify,
    purpose: str = "a migration",
) -> Iterator[Slots]:
    """Hold one of all migration slots and one of each host for the block; wait for them.

    opts: the master's configuration. notify: called once with the reason if it has to wait.
    purpose: the operation, for messages. Raises OperationFailed after the timeout.
    """
    max_total, max_per_host = limits(opts)
    kind_limits = {"all": max_total, **{f"of-{host}": max_per_host for host in hosts}}
    with _acquire_all(opts, kind_limits, notify, purpose) as slots:
        yield slots


@contextlib.contextmanager
def deploying(
    opts: file_lock.Opts, notify: Notify, purpose: str = "a deployment"
) -> Iterator[Slots]:
    """Hold a slot for a deployment; wait for it. More concurrent deployments would slow down the
    hosts and Salt until answers are lost. Yields Slots."""
    kind_limits = {"init": settings.integer(settings.of_master(opts), "inits_at_once", INITS)}
    with _acquire_all(opts, kind_limits, notify, purpose) as slots:
        yield slots


@contextlib.contextmanager
def backing_up(
    opts: file_lock.Opts,
    hosts: Mapping[str, int],
    targets: Mapping[str, int],
    notify: Notify,
    purpose: str = "a backup",
) -> Iterator[Slots]:
    """Hold a slot of each host and of each target for the block; wait for them. hosts, targets:
    each with its maximum."""
    kind_limits = {f"{_BACKUP_OF}{host}": number for host, number in hosts.items()}
    kind_limits |= {f"{_BACKUP_TO}{target}": number for target, number in targets.items()}
    with _acquire_all(opts, kind_limits, notify, purpose) as slots:
        yield slots


def max_hold_s(opts: file_lock.Opts) -> float:
    """Return for how many seconds a deployment keeps its slot while its host is working."""
    return file_lock.queue_timeout_s(opts) * _HOLD_SHARE


@contextlib.contextmanager
def _acquire_all(
    opts: file_lock.Opts, kind_limits: dict[str, int], notify: Notify, purpose: str
) -> Iterator[Slots]:
    """Hold one slot of each kind; hold none while it waits, so that waiting operations do not block
    others."""
    folder = Path(opts["cachedir"]) / "virt" / "slots"
    folder.mkdir(parents=True, exist_ok=True)
    missing_kinds: list[str] = []

    def acquire() -> list[int] | None:
        handles, missing_kind = _take(folder, kind_limits, purpose)
        if missing_kind is None:
            return handles
        if not missing_kinds:
            notify(_reason(missing_kind, kind_limits[missing_kind]))
        missing_kinds[:] = [missing_kind]
        return None

    def wait_reason() -> str:
        kind = missing_kinds[0]
        holders = [
            file_lock.owner(folder / f"{kind}.{index}") for index in range(kind_limits[kind])
        ]
        return f"{_reason(kind, kind_limits[kind])}: {'; '.join(holders)}"

    slots = Slots(file_lock.wait(opts, acquire, wait_reason))
    try:
        yield slots
    finally:
        slots.free()


def _take(folder: Path, kind_limits: dict[str, int], purpose: str) -> tuple[list[int], str | None]:
    """Return (handles, None), or ([], the kind without a free slot)."""
    handles: list[int] = []
    for kind, number in kind_limits.items():
        paths = (folder / f"{kind}.{index}" for index in range(number))
        handle = next(filter(None, (file_lock.take(path, purpose) for path in paths)), None)
        if handle is None:
            Slots(handles).free()
            return [], kind
        handles.append(handle)
    return handles, None


def _reason(kind: str, number: int) -> str:
    if kind == "init":
        return f"{_under_way_text(number, 'deployment')} (virt:inits_at_once)"
    if kind.startswith(_BACKUP_OF):
        about = f" from {kind.removeprefix(_BACKUP_OF)}"
        return f"{_under_way_text(number, 'backup', about)} (virt:backup:at_once_per_host)"
    if kind.startswith(_BACKUP_TO):
        about = f" to {kind.removeprefix(_BACKUP_TO)}"
        return f"{_under_way_text(number, 'backup', about)} (virt:backup:at_once_per_target)"
    if kind == "all":
        return f"{_under_way_text(number, 'migration')} (virt:migration:at_once)"
    host = kind.removeprefix("of-")
    about = f" from or to {host}"
    return f"{_under_way_text(number, 'migration', about)} (virt:migration:at_once_per_host)"


def _under_way_text(number: int, noun: str, about: str = "") -> str:
    return f"{units.pluralize(number, noun)}{about} {'is' if number == 1 else 'are'} under way"
