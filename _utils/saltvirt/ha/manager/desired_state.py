"""The desired state of high availability: written by the verbs, read by the engine."""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from saltvirt import errors, sanitize
from saltvirt.ha.manager import files
from saltvirt.ha.model import committed_config
from saltvirt.ha.model.registry import IGNORED as STATE_IGNORED
from saltvirt.ha.model.registry import STOPPED as STATE_STOPPED
from saltvirt.ha.model.registry import CommittedConfig, Registry
from saltvirt.ha.model.view import (
    IGNORED,
    STARTED,
    STOPPED,
    GuestConfig,
    GuestRule,
    RelocationRequest,
    SavedMasterState,
)
from saltvirt.operations.cluster import ha_provider
from saltvirt.placement.facts import Guest
from saltvirt.schema import Message, optional
from saltvirt.system import file_lock

log = logging.getLogger(__name__)

_MAX_OFFERS = 100

# the message with which other verbs refuse a guest
REFUSAL = (
    "high availability: use salt-run virt.ha_move {name} HOST to move it, virt.ha_enable {name} "
    "state=stopped (or started) to stop (or start) it, virt.ha_ignore {name} to manage it yourself"
)


@dataclass(frozen=True)
class DesiredState(Message):
    """armed: hosts may be fenced and guests restarted. guests, rules, relocations: by name; sizes:
    the capacity that each guest had on its host. autostarted: guests that had autostart before.
    confirmed: host to the boot in which an operator confirmed that it is off. number: of the last
    RelocationRequest. base_term, base_version, offers: with several masters, the agreed
    configuration on which this one is based, and the digests that are not agreed on yet; see
    ha.model.committed_config. rebuilt: it was lost and rebuilt from the registry, and not changed
    since. fresh: a verb created the file, and the engine has not added yet what the hosts store."""

    armed: bool = True
    guests: dict[str, GuestConfig] = field(default_factory=dict)
    sizes: dict[str, Guest] = field(default_factory=dict)
    rules: dict[str, GuestRule] = field(default_factory=dict)
    relocations: dict[str, RelocationRequest] = field(default_factory=dict)
    autostarted: frozenset[str] = frozenset()
    confirmed: dict[str, int] = field(default_factory=dict)
    number: int = 0
    base_term: int = optional(0)
    base_version: int = optional(0)
    offers: tuple[str, ...] = optional(())
    rebuilt: bool = optional(False)
    fresh: bool = optional(False)

    @functools.cached_property
    def shared_config(self) -> CommittedConfig:
        """The configuration on which masters agree."""
        content = replace(self, base_term=0, base_version=0, offers=(), fresh=False).to_answer()
        return CommittedConfig(
            self.base_term, self.base_version, json.dumps(content, sort_keys=True)
        )

    @property
    def sized_guests(self) -> dict[str, GuestConfig]:
        """The guests with their sizes."""
        return {
            name: replace(guest_config, size=self.sizes.get(name, guest_config.size))
            for name, guest_config in self.guests.items()
        }

    def without(self, name: str) -> DesiredState:
        """Return the state without that guest."""
        rules = {
            key: replace(rule, guests=tuple(item for item in rule.guests if item != name))
            for key, rule in self.rules.items()
        }
        return replace(
            self,
            guests={key: item for key, item in self.guests.items() if key != name},
            sizes={key: item for key, item in self.sizes.items() if key != name},
            relocations={key: item for key, item in self.relocations.items() if key != name},
            rules=rules,
            autostarted=self.autostarted - {name},
        )


def rebuild(registry: Registry) -> DesiredState:
    """Rebuild the desired state from the decisions, if nothing else remains."""
    states = {STATE_STOPPED: STOPPED, STATE_IGNORED: IGNORED}
    guests = {
        name: GuestConfig(
            name,
            host=record.host or record.last,
            desired_state=states.get(record.state, STARTED),
            agent_silent_s=record.agent_silent_s,
        )
        for name, record in registry.guests.items()
    }
    number = max((record.last_request for record in registry.guests.values()), default=0)
    return DesiredState(armed=registry.armed, guests=guests, number=number, rebuilt=True)


def from_registry(registry: Registry) -> DesiredState:
    """Return the desired state that the hosts store. Raises OperationFailed if it cannot be
    read."""
    if not (registry.config.text or registry.guests):
        return DesiredState()
    return parse(registry.config) if registry.config.text else rebuild(registry)


def merge_states(own_desired: DesiredState, previous: DesiredState) -> DesiredState:
    """Return what was requested after the file was lost, combined with the previous state."""
    relocations = {
        name: replace(relocation, number=relocation.number + previous.number)
        for name, relocation in own_desired.relocations.items()
    }
    return replace(
        own_desired,
        armed=own_desired.armed and previous.armed,
        guests={**previous.guests, **own_desired.guests},
        sizes={**previous.sizes, **own_desired.sizes},
        rules={**previous.rules, **own_desired.rules},
        relocations={**previous.relocations, **relocations},
        autostarted=previous.autostarted | own_desired.autostarted,
        confirmed={**previous.confirmed, **own_desired.confirmed},
        number=own_desired.number + previous.number,
        fresh=False,
    )


def parse(committed: CommittedConfig) -> DesiredState:
    """Parse the configuration that the masters have agreed on. Raises OperationFailed."""
    try:
        return DesiredState.from_answer(
            json.loads(committed.text), "the configuration that the masters agreed on"
        )
    except (ValueError, RecursionError, errors.BadAnswer) as exc:
        raise errors.OperationFailed(
            f"the configuration that the masters agreed on cannot be read: {sanitize.one_line(exc)}"
        ) from exc


class DesiredStateStore:
    """The file of a master."""

    def __init__(self, opts: file_lock.Opts) -> None:
        self._opts = opts
        self.path = files.folder(opts) / "desired_state.json"
        self._cache: tuple[tuple[int, ...], DesiredState] | None = None

    def read(self) -> DesiredState:
        """Read the file. Raises OperationFailed if it is damaged, or if it is missing although
        guests are managed."""
        stored = self._read()
        if stored is None and self._has_guests():
            raise errors.OperationFailed(
                f"{self.path} is missing, although high availability manages guests: the engine "
                "virt_ha restores it from the hosts as soon as it leads; or restore it from a "
                "backup"
            )
        return stored or DesiredState()

    def _read(self) -> DesiredState | None:
        stored = files.read(self.path, DesiredState)
        if stored is not None and not stored.guests and not files.has_key(self.path, "guests"):
            raise errors.OperationFailed(
                f"{self.path} has no entry for guests: restore it from a backup, or move it away, "
                "so that the engine restores it"
            )
        return stored

    def _has_guests(self) -> bool:
        saved = files.read(files.folder(self._opts) / "state.json", SavedMasterState)
        return saved is not None and bool(saved.registry.guests)

    def read_if_changed(self) -> DesiredState | None:
        """Read the file if it has changed since the last call; otherwise return None."""
        try:
            file_status = os.stat(self.path)
        except FileNotFoundError:
            stamp: tuple[int, ...] = ()
        else:
            stamp = (file_status.st_ino, file_status.st_mtime_ns, file_status.st_size)
        if self._cache is not None and self._cache[0] == stamp:
            return None
        self._cache = stamp, self._read() or DesiredState()
        return self._cache[1]

    def restore(self, desired: DesiredState) -> bool:
        """Write the file if it does not exist. Return whether it was written. Raises
        OperationFailed, also at once if another process has locked the file; OSError."""
        with files.locked(self.path.with_suffix(".lock"), "the engine virt_ha", timeout_s=0):
            if self.path.exists():
                return False
            files.write(self.path, desired)
            return True

    def join(self, previous: DesiredState) -> DesiredState:
        """Add the previous state to a fresh file. Raises OperationFailed, also at once if another
        process has locked the file; OSError."""
        with files.locked(self.path.with_suffix(".lock"), "the engine virt_ha", timeout_s=0):
            own_desired = self._read() or DesiredState()
            new = merge_states(own_desired, previous) if own_desired.fresh else own_desired
            files.write(self.path, new)
            return new

    def change(self, operation: str, edit: Callable[[DesiredState], DesiredState]) -> DesiredState:
        """Apply ``edit`` to the present state and save the result, one caller at a time. Return the
        state as read again. operation: the name of the operation, for others that wait."""
        with files.locked(self.path.with_suffix(".lock"), operation):
            if self.path.parent != files.folder(self._opts):
                raise errors.OperationFailed(
                    "the files of high availability were moved: run the command again"
                )
            fresh = not self.path.exists()
            old = self.read()
            desired = replace(edit(old), rebuilt=False)
            desired = replace(desired, fresh=desired.fresh or fresh)
            try:  # an error here leaves the desired state unchanged
                self.guard(desired, old)
                files.write(self.path, desired)
            except BaseException:
                self._try_guard(old)
                raise
            self._try_guard(desired)
            return self.read()

    def offer(self, operation: str, edit: Callable[[DesiredState], DesiredState]) -> DesiredState:
        """Like ``change``, if the other masters have to agree."""

        def edit_with_offer(old: DesiredState) -> DesiredState:
            new = edit(old)
            digest = committed_config.digest(new.shared_config.text)
            return replace(new, offers=(*old.offers, digest)[-_MAX_OFFERS:])

        return self.change(operation, edit_with_offer)

    def learn(self, committed: CommittedConfig, backup_path: Path) -> bool:
        """Save what the masters have agreed on. Return whether this discards requests of this
        master, which are then saved to backup_path. Raises OperationFailed if it cannot be read,
        and at once if another process has locked the file; OSError."""
        with files.locked(self.path.with_suffix(".lock"), "the engine virt_ha", timeout_s=0):
            old = self._read() or DesiredState()
            own_config = old.shared_config if self.path.exists() else CommittedConfig()
            merged, offers, is_discarded = committed_config.merge(own_config, old.offers, committed)
            if (merged, offers) == (own_config, old.offers):
                return False
            base = old if merged.text == own_config.text else parse(merged)
            term, version = merged.stamp
            new = replace(base, base_term=term, base_version=version, offers=offers)
            if is_discarded:
                files.write(backup_path, old)
            files.write(self.path, new)
            return is_discarded

    def _try_guard(self, desired: DesiredState) -> None:
        """Tell other verbs which guests are managed. If that fails, they refuse more guests until
        the engine repeats it."""
        try:
            self.guard(desired)
        except (errors.VirtError, OSError) as exc:
            log.warning(
                "other verbs do not know yet which guests are managed: %s", sanitize.one_line(exc)
            )

    def guard(self, *states: DesiredState) -> None:
        """Have other verbs refuse the guests of all these states, except those that are ignored."""
        names = [
            name
            for desired in states
            for name, guest_config in desired.guests.items()
            if guest_config.desired_state != IGNORED
        ]
        ha_provider.store_managed(self._opts, {name: REFUSAL.format(name=name) for name in names})
