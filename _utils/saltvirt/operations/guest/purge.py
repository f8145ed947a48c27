"""Remove a guest, its own disks and its key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from saltvirt import errors, names
from saltvirt.answers.calls import Call
from saltvirt.answers.guest_calls import (
    LIST_STATES,
    PLAN_ORPHAN_REMOVAL,
    PLAN_PURGE,
    PURGE,
    REMOVE_ORPHANS,
    GuestsRequest,
    OrphanRequest,
    PurgePlanRequest,
    PurgeRequest,
)
from saltvirt.answers.removal import RemovalPlan
from saltvirt.fleet import syndic
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import (
    find,
    ha_provider,
    inventory,
    shared_storage_check,
    start_safety,
)
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.journal import intent_log, location_cache, lock
from saltvirt.placement import facts


@dataclass(frozen=True)
class Removal:
    """What a purge deletes, and what it keeps (path to reason), after the other hosts were asked.
    unused: the deleted paths that other hosts can reach and do not use. unsure: the guest's own
    disks that stay."""

    delete: list[str]
    keep: dict[str, str]
    unused: list[str]
    unsure: list[str]

    def would(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return asdict(self)

    def done(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {"delete": self.delete, "keep": self.keep, "unsure": self.unsure}


def plan(
    fleet: Fleet,
    host: str,
    name: str,
    call: Call[PurgePlanRequest, RemovalPlan] = PLAN_PURGE,
    **options: Any,
) -> Removal:
    """Return what ``virt.purge`` would do on the host, after the other hosts were asked. Changes
    nothing. call: asks for another removal."""
    removal_plan = call.ask(fleet, host, PurgePlanRequest(name, options))
    unused, retained = shared_storage_check.unused_elsewhere(fleet, host, removal_plan.shared)
    keep = {path: reason for path, reason in removal_plan.keep.items() if path not in unused}
    unsure = sorted({*removal_plan.unsure} - {*unused})
    return Removal(sorted({*removal_plan.delete, *unused}), {**keep, **retained}, unused, unsure)


def on_host(fleet: Fleet, host: str, name: str, **options: Any) -> Removal:
    """Purge the guest on the host, and return what was deleted and kept. What other hosts can reach
    is only deleted if each of them answered that it does not use it."""
    removal = plan(fleet, host, name, **options)
    done = PURGE.ask(fleet, host, PurgeRequest(name, tuple(removal.unused), options))
    leftovers = done.get("left", {}) if isinstance(done, dict) else {}
    if not leftovers.keys() - removal.keep.keys():
        return removal
    return replace(  # the files came into use after the plan was made
        removal,
        delete=[path for path in removal.delete if path not in leftovers],
        keep={**removal.keep, **leftovers},
        unsure=sorted({*removal.unsure, *leftovers}),
    )


def remove_orphans(fleet: Fleet, host: str, name: str) -> None:
    """Remove the disks that an interrupted operation created for a guest. Raises OperationFailed if
    one of them stays."""
    removal = plan(fleet, host, name, PLAN_ORPHAN_REMOVAL)
    try:
        REMOVE_ORPHANS.ask(fleet, host, OrphanRequest(name, tuple(removal.unused)))
    except errors.OperationFailed as exc:
        message = "; ".join(f"{path} stays: {reason}" for path, reason in removal.keep.items())
        raise errors.OperationFailed(message or exc.text) from exc


def purge_partial(fleet: Fleet, host: str, name: str, **options: Any) -> Removal:
    """Purge a guest that an init created partially; the caller holds its lock. Raises
    OperationFailed, before anything is changed, if the guest is now complete, if it was ever
    started, or if a disk would stay: without the guest's record, the disk would have no owner."""
    leftovers = find.leftovers(fleet, host)
    if name not in leftovers.unfinished:
        raise errors.OperationFailed(f"{name} on {host} was changed meanwhile: run this again")
    if name in leftovers.used:
        raise errors.OperationFailed(f"{name} on {host} stays: {leftovers.used[name]}")
    removal = plan(fleet, host, name, **options)
    for path in removal.unsure:
        raise errors.OperationFailed(f"{path} on {host} stays: {removal.keep[path]}")
    return on_host(fleet, host, name, force=False, **options)


class Purge:
    """Remove a guest, its own disks, and its key if the key was accepted for this guest on this
    host.

    expected_host: the host that must have the guest. deployment: the deployment to which it must
    belong. force: also remove a guest that is not off. If the guest cannot be removed, its key
    stays.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        delete_key: bool = True,
        expected_host: str | None = None,
        deployment: str | None = None,
        force: bool = False,
    ) -> None:
        self.fleet, self.name, self.delete_key = fleet, str(name), delete_key
        self.expected_host, self.deployment, self.force = expected_host, deployment, force

    def check(self) -> Checked:
        """Return what the host would delete and keep, and whether the key would be deleted."""
        reasons = Reasons()
        with reasons:
            name = names.guest(self.name)
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
            with reasons:
                ha_provider.refuse_managed(self.fleet.opts, name)
            host, state, unheard = self._locate(name)
            with reasons:
                self._refuse_active(host, state)
            removal = plan(self.fleet, host, name)
            deletes_key, key_reason = self._key(host, unheard)
            reasons.raise_first()
            disks = ", ".join(removal.delete) or "no disks"
            comment = f"{name} would be removed from {host}, with {disks}"
            comment += " and its key" if deletes_key else ""
            changes = {"removed": removal.would(), "key": deletes_key}
            return Checked(
                name, comment + _retained_text(key_reason, removal), changes, {"host": host}
            )
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Remove the guest. Raises NotFound, OperationFailed."""
        fleet, name = self.fleet, names.guest(self.name)
        with lock.guest(fleet.opts, name, "virt.purge"):
            ha_provider.refuse_managed(fleet.opts, name)
            host, state, unheard = self._locate(name)
            self._refuse_active(host, state)
            if self.expected_host not in (None, host):
                raise errors.OperationFailed(
                    f"{name} is on {host} now, not on {self.expected_host}: it stays"
                )
            self._refuse_others(host)
            options = {} if self.force else {"force": False}
            removal = on_host(fleet, host, name, **options)
            states = LIST_STATES.ask(fleet, host, GuestsRequest(), long=True)
            if name in states:
                raise errors.OperationFailed(f"{host}: libvirt still has {name}")
            location_cache.store_host(fleet.opts, host, states)
            intent_log.forget(fleet.opts, name)
            location_cache.forget(fleet.opts, name)
            deletes_key, key_reason = self._key(host, unheard)
            if deletes_key:
                KeyStore(fleet.opts).delete(name)
        comment = f"{name} was removed from {host}"
        comment += " and its key from the master" if deletes_key else ""
        changes = {"removed": True, **removal.done()}
        return Result(name, comment + _retained_text(key_reason, removal), changes, {"host": host})

    def _refuse_active(self, host: str, state: str) -> None:
        """Raise OperationFailed if the guest is not off, unless ``force`` is given."""
        if state in facts.ACTIVE and not self.force:
            raise errors.OperationFailed(
                f"{self.name} is {state} on {host}: salt-run virt.shutdown {self.name} "
                "shuts it down; force=True powers it off and removes it"
            )

    def _refuse_others(self, host: str) -> None:
        """Raise OperationFailed if the guest does not belong to the deployment (any more): it may
        have been created again by another operation."""
        if self.deployment is None:
            return
        hosts, unreachable = inventory.gather(self.fleet, [host])
        if unreachable:
            raise errors.ConnectionFailed(f"{host}: {unreachable[host]}")
        [deployment] = [
            guest.deployment for guest in hosts[0].guests if guest.name == self.name
        ] or [None]
        if deployment != self.deployment:
            raise errors.OperationFailed(
                f"{self.name} on {host} no longer belongs to deployment {self.deployment}: it stays"
            )

    def _locate(self, name: str) -> tuple[str, str, str]:
        """Return (the guest's host, its state, the hosts that may run another definition of a guest
        that is off, as text)."""
        locations = find.locations(self.fleet)
        host = locations.host_of(name)
        location_cache.store(self.fleet.opts, name, host)
        state = locations.guests[name][host]
        if state in facts.ACTIVE:
            return host, state, ""
        return host, state, "; ".join(start_safety.unheard_hosts(self.fleet, locations, name))

    def _key(self, host: str, unheard: str) -> tuple[bool, str | None]:
        """Return (whether the guest's key is deleted, why an existing key stays)."""
        if not self.delete_key:
            return False, None
        keys = KeyStore(self.fleet.opts)
        if syndic.below(self.fleet.opts, host):
            reason = f"{host} is below a syndic: the syndic's master has the key, if there is one"
            return False, reason
        if keys.status(self.name) is None:
            return False, None
        key_reason = keys.retain_reason(self.name, host)
        if key_reason is None and unheard:
            key_reason = f"the guest may run on a host that does not answer ({unheard})"
        return key_reason is None, key_reason


def _retained_text(key_reason: str | None, removal: Removal) -> str:
    """Return why the key stays, and each disk that stays."""
    text = f"; its key stays: {key_reason}" if key_reason else ""
    return text + "".join(f"; {path} stays: {reason}" for path, reason in removal.keep.items())
