"""Storage pools as they shall be: what differs, and the states that say so."""

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
    """What a pool shall be.

    spec: None leaves its definition as it is. running: None leaves it as it is. transient: it
    runs, and is forgotten when it is stopped. restart: also when running guests use its volumes.
    """

    name: str
    spec: PoolSpec | None
    running: bool | None
    autostart: bool
    transient: bool = False
    restart: bool = False


@dataclass(frozen=True)
class PoolFacts:
    """A pool as it is, and how it differs.

    redefined: the changes from the definition that it has; now: those from the pool as it runs,
    empty when it does not. new_password: the one given is not the one that libvirt has. users: the
    running guests that have volumes of it open; they matter where it must be stopped.
    """

    active: bool
    persistent: bool
    autostart: bool
    redefined: list[Change]
    live_changes: list[Change]
    new_password: bool = False
    users: tuple[str, ...] = ()


def created(desired: DesiredPool, hostname: str) -> StateOutcome:
    """The Outcome where there is no such pool. Raises InvalidInput when nothing says what it is."""
    if desired.spec is None:
        raise errors.InvalidInput(
            f"there is no storage pool {desired.name} on {hostname}: to make it, ptype is needed"
        )
    outcome = StateOutcome(f"storage pool {desired.name}")
    outcome.switch("defined", False, True, "defined")
    autostart = desired.autostart and not desired.transient
    outcome.switch("autostart", False, autostart, "marked for autostart")
    outcome.switch("active", False, bool(desired.running or desired.transient), "started")
    return outcome


@dataclass(frozen=True)
class PoolStep:
    """From what a pool is to what it shall be."""

    desired: DesiredPool
    facts: PoolFacts

    @property
    def forgets(self) -> bool:
        """Whether its definition goes; libvirt forgets that of a pool only when it is stopped."""
        return bool(self.desired.spec and self.desired.transient and self.facts.persistent)

    @property
    def stops(self) -> bool:
        """Whether all of it holds only after it was stopped."""
        return bool(self.facts.live_changes or (self.forgets and self.facts.active))

    @property
    def restarts(self) -> bool:
        """Whether it is stopped and started for that."""
        runs = self.desired.running or self.desired.transient
        return bool(self.stops and runs and (self.desired.restart or not self.facts.users))

    @property
    def recreates(self) -> bool:
        """Whether it is taken away and made again, as a transient one."""
        return self.forgets or (self.desired.transient and self.restarts)

    def outcome(self) -> StateOutcome:
        """What changes. Raises InvalidInput for a transient pool that would have to be stopped."""
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
                f"runs{reason}; "
                "restart: True stops it and makes it again"
            )
        text = f"What was changed takes effect when the pool is started again{reason}"
        return text + (" (restart: True does it now)" if self.desired.running else "")
