"""States of storage pools, with their differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.states.outcome import StateOutcome, by_path

if TYPE_CHECKING:
    from saltvirt.diff.change import Change
    from saltvirt.spec.pool import PoolSpec
    from saltvirt.states.result import Answer, StateHost

_HIDDEN = "(hidden)"


def defined(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.pool_defined``."""
    return host.converged(name, "pool_converge", name, **options)


def running(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.pool_running``."""
    return host.converged(name, "pool_converge", name, running=True, **options)


def deleted(host: StateHost, name: str, purge: bool, force: bool) -> Answer:
    """See ``virt.pool_deleted``."""
    return host.converged(name, "pool_remove", name, purge, force)


@dataclass(frozen=True)
class DesiredPool:
    """The desired pool.

    spec: None: definition unchanged. running: None: unchanged. transient: the pool is active, and
    is not defined any more once it is stopped. restart: even if running guests use its volumes.
    """

    name: str
    spec: PoolSpec | None
    running: bool | None
    autostart: bool
    transient: bool = False
    restart: bool = False


@dataclass(frozen=True)
class PoolFacts:
    """The actual pool, and its differences.

    redefined: the changes of its definition; live_changes: differences of the active pool, empty if
    it is not active. new_password: the password differs from libvirt's. users: running guests that
    have its volumes open, for a restart.
    """

    active: bool
    persistent: bool
    autostart: bool
    redefined: list[Change]
    live_changes: list[Change]
    new_password: bool = False
    users: tuple[str, ...] = ()


def created(desired: DesiredPool, hostname: str) -> StateOutcome:
    """The StateOutcome if the pool does not exist. Raises InvalidInput if its type is not given."""
    if desired.spec is None:
        raise errors.InvalidInput(
            f"storage pool {desired.name} does not exist on {hostname}; give ptype to create it"
        )
    outcome = StateOutcome(f"storage pool {desired.name}")
    outcome.switch("defined", False, True, "defined")
    autostart = desired.autostart and not desired.transient
    outcome.switch("autostart", False, autostart, "marked for autostart")
    outcome.switch("active", False, bool(desired.running or desired.transient), "started")
    return outcome


@dataclass(frozen=True)
class PoolStep:
    """The change from an actual to a desired pool."""

    desired: DesiredPool
    facts: PoolFacts

    @property
    def forgets(self) -> bool:
        """Whether its definition is removed; libvirt removes that of a pool only when it is
        stopped."""
        return bool(self.desired.spec and self.desired.transient and self.facts.persistent)

    @property
    def stops(self) -> bool:
        """Whether the changes need the pool to be stopped."""
        return bool(self.facts.live_changes or (self.forgets and self.facts.active))

    @property
    def restarts(self) -> bool:
        """Whether the pool is restarted for the changes."""
        runs = self.desired.running or self.desired.transient
        return bool(self.stops and runs and (self.desired.restart or not self.facts.users))

    @property
    def recreates(self) -> bool:
        """Whether a transient pool is removed and created again."""
        return self.forgets or (self.desired.transient and self.restarts)

    def outcome(self) -> StateOutcome:
        """The StateOutcome. Raises InvalidInput for a transient pool that would have to be
        stopped."""
        outcome = StateOutcome(f"storage pool {self.desired.name}")
        outcome.changes = by_path(self.facts.live_changes) if self.restarts else {}
        outcome.changes.update(by_path(self.facts.redefined))
        if self.facts.new_password:
            outcome.changes["password"] = {"old": _HIDDEN, "new": _HIDDEN}
        if outcome.changes:
            outcome.actions.append("updated")
        self._lifecycle(outcome)
        if self.restarts:
            outcome.actions.append("restarted")
        elif self.stops:
            outcome.notes.append(self._pending_note())
        return outcome

    def _lifecycle(self, outcome: StateOutcome) -> None:
        desired, facts = self.desired, self.facts
        stays = facts.persistent
        if desired.spec:
            stays = not desired.transient
            word = "defined" if stays else "made transient"
            outcome.switch("persistent", facts.persistent, stays, word)
        if stays:
            on = desired.autostart
            word = "marked for autostart" if on else "no longer started with the host"
            outcome.switch("autostart", facts.autostart, on, word)
        if desired.running or not stays:
            outcome.switch("active", facts.active, True, "started")

    def _pending_note(self) -> str:
        users = ", ".join(self.facts.users)
        reason = f", as {users} has volumes of it open" if users else ""
        if self.desired.transient:
            raise errors.InvalidInput(
                f"transient storage pool {self.desired.name} cannot be changed while it "
                f"runs{reason}; restart: True stops it and creates it again"
            )
        text = f"The changes take effect when the pool is restarted{reason}"
        return text + (" (restart: True restarts it now)" if self.desired.running else "")
