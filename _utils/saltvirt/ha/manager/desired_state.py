"""What persons want of high availability: written by the verbs, read by the engine."""

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

# what other verbs say of a guest
REFUSAL = (
    "high availability: salt-run virt.ha_move {name} HOST moves it, virt.ha_enable {name} "
    "state=stopped (or started) stops it (or starts it), virt.ha_ignore {name} leaves it to you"
)


@dataclass(frozen=True)
class DesiredState(Message):
    """armed: anything may be fenced and restarted. guests, rules, wishes: by name; sizes: what
    each guest took of its host. autostarted: guests that libvirt started with their host before.
    confirmed: host to the boot of which a person said that it is off. number: of the last Wish.
    base_term, base_version, offers: see ha.wished: where there are several masters, upon which that
    was agreed on this was made, and what nobody has agreed on yet. remade: it was lost, and made
    anew from the registry; no person has said anything since. fresh: a verb wrote it where there
    was no file, and the engine has not added yet what the hosts keep."""

    armed: bool = True
    guests: dict[str, GuestConfig] = field(default_factory=dict)
    sizes: dict[str, Guest] = field(default_factory=dict)
    rules: dict[str, GuestRule] = field(default_factory=dict)
    wishes: dict[str, RelocationRequest] = field(default_factory=dict)
    autostarted: frozenset[str] = frozenset()
    confirmed: dict[str, int] = field(default_factory=dict)
    number: int = 0
    base_term: int = optional(0)
    base_version: int = optional(0)
    offers: tuple[str, ...] = optional(())
    remade: bool = optional(False)
    fresh: bool = optional(False)

    @functools.cached_property
    def shared_config(self) -> CommittedConfig:
        """As masters agree on it."""
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
        """Where that guest is no longer of high availability."""
        rules = {
            key: replace(rule, guests=tuple(item for item in rule.guests if item != name))
            for key, rule in self.rules.items()
        }
        return replace(
            self,
            guests={key: item for key, item in self.guests.items() if key != name},
            sizes={key: item for key, item in self.sizes.items() if key != name},
            wishes={key: item for key, item in self.wishes.items() if key != name},
            rules=rules,
            autostarted=self.autostarted - {name},
        )


def rebuild(registry: Registry) -> DesiredState:
    """What can be told of it from what was decided, where nothing else is left."""
    states = {STATE_STOPPED: STOPPED, STATE_IGNORED: IGNORED}
    guests = {
        name: GuestConfig(
            name,
            host=record.host or record.last,
            wanted=states.get(record.state, STARTED),
            agent_silent_s=record.agent_silent_s,
        )
        for name, record in registry.guests.items()
    }
    number = max((record.wish for record in registry.guests.values()), default=0)
    return DesiredState(armed=registry.armed, guests=guests, number=number, remade=True)


def from_registry(registry: Registry) -> DesiredState:
    """What the hosts keep of what persons want. Raises OperationFailed for what cannot be read."""
    if not (registry.wished.text or registry.guests):
        return DesiredState()
    return parse(registry.wished) if registry.wished.text else rebuild(registry)


def merge_states(own_desired: DesiredState, previous: DesiredState) -> DesiredState:
    """What a person said where the file was lost, with what had been said before."""
    relocations = {
        name: replace(relocation, number=relocation.number + previous.number)
        for name, relocation in own_desired.wishes.items()
    }
    return replace(
        own_desired,
        armed=own_desired.armed and previous.armed,
        guests={**previous.guests, **own_desired.guests},
        sizes={**previous.sizes, **own_desired.sizes},
        rules={**previous.rules, **own_desired.rules},
        wishes={**previous.wishes, **relocations},
        autostarted=previous.autostarted | own_desired.autostarted,
        confirmed={**previous.confirmed, **own_desired.confirmed},
        number=own_desired.number + previous.number,
        fresh=False,
    )


def parse(committed: CommittedConfig) -> DesiredState:
    """What masters have agreed on. Raises OperationFailed for what cannot be read."""
    try:
        return DesiredState.from_answer(
            json.loads(committed.text), "what the masters have agreed on"
        )
    except (ValueError, RecursionError, errors.BadAnswer) as exc:
        raise errors.OperationFailed(
            f"what the masters have agreed on cannot be read: {sanitize.one_line(exc)}"
        ) from exc


class DesiredStateStore:
    """The file of a master."""

    def __init__(self, opts: file_lock.Opts) -> None:
        self._opts = opts
        self.path = files.folder(opts) / "wishes.json"
        self._cache: tuple[tuple[int, ...], DesiredState] | None = None

    def read(self) -> DesiredState:
        """Raises OperationFailed when the file is damaged, or lost: when there is none, and guests
        are kept."""
        stored = self._read()
        if stored is None and self._has_guests():
            raise errors.OperationFailed(
                f"{self.path} is missing, and there are guests of high availability: the engine "
                "virt_ha makes it anew from what the hosts keep as soon as it leads; or put it "
                "back from a backup"
            )
        return stored or DesiredState()

    def _read(self) -> DesiredState | None:
        stored = files.read(self.path, DesiredState)
        if stored is not None and not stored.guests and not files.has_key(self.path, "guests"):
            raise errors.OperationFailed(
                f"{self.path} names no guests at all, not even none: put it back from a backup, or "
                "move it away: it is made anew"
            )
        return stored

    def _has_guests(self) -> bool:
        saved = files.read(files.folder(self._opts) / "kept.json", SavedMasterState)
        return saved is not None and bool(saved.registry.guests)

    def read_if_changed(self) -> DesiredState | None:
        """The same when the file has changed since it was last asked; None when it has not."""
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
        """Writes the file anew, if there is none. Returns whether it did. Raises OperationFailed,
        also at once while another has the file; OSError."""
        with files.locked(self.path.with_suffix(".lock"), "the engine virt_ha", timeout_s=0):
            if self.path.exists():
                return False
            files.write(self.path, desired)
            return True

    def join(self, previous: DesiredState) -> DesiredState:
        """Adds what had been said before to a fresh file. Raises OperationFailed, also at once
        while another has the file; OSError."""
        with files.locked(self.path.with_suffix(".lock"), "the engine virt_ha", timeout_s=0):
            own_desired = self._read() or DesiredState()
            new = merge_states(own_desired, previous) if own_desired.fresh else own_desired
            files.write(self.path, new)
            return new

    def change(self, operation: str, edit: Callable[[DesiredState], DesiredState]) -> DesiredState:
        """Writes what ``make`` makes of the present ones, one caller at a time, and returns it as
        it was read again. operation: the operation, for others who wait."""
        with files.locked(self.path.with_suffix(".lock"), operation):
            if self.path.parent != files.folder(self._opts):
                raise errors.OperationFailed("the files of high availability were moved: try again")
            fresh = not self.path.exists()
            old = self.read()
            desired = replace(edit(old), remade=False)
            desired = replace(desired, fresh=desired.fresh or fresh)
            try:  # what fails here has changed nothing
                self.guard(desired, old)
                files.write(self.path, desired)
            except BaseException:
                self._try_guard(old)
                raise
            self._try_guard(desired)
            return self.read()

    def offer(self, operation: str, edit: Callable[[DesiredState], DesiredState]) -> DesiredState:
        """As ``change``, where the other masters have to agree."""

        def edit_with_offer(old: DesiredState) -> DesiredState:
            new = edit(old)
            digest = committed_config.digest(new.shared_config.text)
            return replace(new, offers=(*old.offers, digest)[-_MAX_OFFERS:])

        return self.change(operation, edit_with_offer)

    def learn(self, committed: CommittedConfig, backup_path: Path) -> bool:
        """What the masters have agreed on. Returns whether something was given up by that, which a
        person had wanted here: it is put aside. Raises OperationFailed for what cannot be read, and
        at once while another has the file; OSError."""
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
        """What cannot be written is refused a while longer: the engine makes it right."""
        try:
            self.guard(desired)
        except (errors.VirtError, OSError) as exc:
            log.warning(
                "other verbs do not know yet which guests are kept: %s", sanitize.one_line(exc)
            )

    def guard(self, *states: DesiredState) -> None:
        """Other verbs leave the guests of all of them alone, but for those that are ignored."""
        names = [
            name
            for desired in states
            for name, guest_config in desired.guests.items()
            if guest_config.wanted != IGNORED
        ]
        ha_provider.store_managed(self._opts, {name: REFUSAL.format(name=name) for name in names})
