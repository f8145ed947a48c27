"""Remove a guest, its own disks and its key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from saltvirt import errors, names
from saltvirt.answers.removal import RemovalPlan
from saltvirt.fleet import syndic
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import alone, away, begun, find, hints, inventory, keepers, lock, proof
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.placement import facts


@dataclass(frozen=True)
class Removal:
    """What a purge deletes and what it keeps (path to why), the other hosts asked. unused: of what
    is deleted, what other hosts could have and do not use. unsure: the guest's own disks that
    stay."""

    delete: list[str]
    keep: dict[str, str]
    unused: list[str]
    unsure: list[str]

    def would(self) -> dict[str, Any]:
        """For people, as plain data."""
        return asdict(self)

    def done(self) -> dict[str, Any]:
        """The same once it was done."""
        return {"delete": self.delete, "keep": self.keep, "unsure": self.unsure}


def plan(
    fleet: Fleet, host: str, name: str, function: str = "virt.purge", **options: Any
) -> Removal:
    """What ``virt.purge`` would do on the host, the other hosts asked. Changes nothing. function:
    another one that takes and answers the same."""
    asked = {"vm_": name, "test": True, **options}
    found = RemovalPlan.from_answer(fleet.one(host, function, asked, long=False), host)
    unused, why = proof.elsewhere(fleet, host, found.shared)
    keep = {path: words for path, words in found.keep.items() if path not in unused}
    unsure = sorted({*found.unsure} - {*unused})
    return Removal(sorted({*found.delete, *unused}), {**keep, **why}, unused, unsure)


def on_host(fleet: Fleet, host: str, name: str, **options: Any) -> Removal:
    """Purges the guest there; what was deleted and what stayed. What other hosts may have goes
    only when each of them said that it does not use it."""
    found = plan(fleet, host, name, **options)
    asked = {"vm_": name, "unused": found.unused, **options}
    done = fleet.one(host, "virt.purge", asked, long=True)
    left = (done.get("left") or {}) if isinstance(done, dict) else {}
    if not left.keys() - found.keep.keys():
        return found
    return replace(  # somebody began to use it after the plan was made
        found,
        delete=[path for path in found.delete if path not in left],
        keep={**found.keep, **left},
        unsure=sorted({*found.unsure, *left}),
    )


def made(fleet: Fleet, host: str, name: str) -> None:
    """Removes the disks that an operation which died has made for a guest on the host. Raises
    OperationFailed when something stays."""
    found = plan(fleet, host, name, "virt.remove_made")
    try:
        fleet.one(host, "virt.remove_made", {"vm_": name, "unused": found.unused}, long=True)
    except errors.OperationFailed as exc:
        why = "; ".join(f"{path} stays: {words}" for path, words in found.keep.items())
        raise errors.OperationFailed(why or exc.text) from exc


def leftover(fleet: Fleet, host: str, name: str, **options: Any) -> Removal:
    """Purges a guest that an init has half made, by who holds its lock. Raises OperationFailed,
    before anything is changed, when it is not half made any more, when it was ever started, and
    when a disk would stay: without its record it would be nobody's."""
    has = find.leftovers(fleet, host)
    if name not in has.unfinished:
        raise errors.OperationFailed(f"{name} on {host} was changed meanwhile: run this again")
    if name in has.used:
        raise errors.OperationFailed(f"{name} on {host} stays: {has.used[name]}")
    found = plan(fleet, host, name, **options)
    for path in found.unsure:
        raise errors.OperationFailed(f"{path} on {host} stays: {found.keep[path]}")
    return on_host(fleet, host, name, force=False, **options)


class Purge:
    """Removes a guest, its own disks, and its key when it was accepted for this guest of this host.

    on: the host that must have it. deployment: whose guest it must be. force: also a guest that is
    not off. The key stays when the guest could not be removed.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        delete_key: bool = True,
        on: str | None = None,
        deployment: str | None = None,
        force: bool = False,
    ) -> None:
        self.fleet, self.name, self.delete_key, self.on = fleet, str(name), delete_key, on
        self.deployment, self.force = deployment, force

    def check(self) -> Checked:
        """What its host would delete and keep, and whether its key would go."""
        reasons = Reasons()
        with reasons:
            name = names.guest(self.name)
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
            with reasons:
                keepers.refuse(self.fleet.opts, name)
            host, state, unheard = self._locate(name)
            with reasons:
                self._refuse_active(host, state)
            found = plan(self.fleet, host, name)
            goes, why = self._key(host, unheard)
            reasons.hold()
            disks = ", ".join(found.delete) or "no disks"
            comment = f"{name} would be removed from {host}, with {disks}"
            comment += " and its key" if goes else ""
            changes = {"removed": found.would(), "key": goes}
            return Checked(name, comment + _stays(why, found), changes, {"host": host})
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, OperationFailed."""
        fleet, name = self.fleet, names.guest(self.name)
        with lock.guest(fleet.opts, name, "virt.purge"):
            keepers.refuse(fleet.opts, name)
            host, state, unheard = self._locate(name)
            self._refuse_active(host, state)
            if self.on not in (None, host):
                raise errors.OperationFailed(f"{name} is on {host} now, not on {self.on}: it stays")
            self._refuse_others(host)
            options = {} if self.force else {"force": False}
            removed = on_host(fleet, host, name, **options)
            there = fleet.one(host, "virt.vm_state") or {}
            if name in there:
                raise errors.OperationFailed(f"{host}: libvirt still has {name}")
            hints.heard(fleet.opts, host, there)
            begun.forget(fleet.opts, name)
            away.forget(fleet.opts, name)
            hints.forget(fleet.opts, name)
            goes, why = self._key(host, unheard)
            if goes:
                KeyStore(fleet.opts).delete(name)
        comment = f"{name} was removed from {host}"
        comment += " and its key from the master" if goes else ""
        changes = {"removed": True, **removed.done()}
        return Result(name, comment + _stays(why, removed), changes, {"host": host})

    def _refuse_active(self, host: str, state: str) -> None:
        """Raises OperationFailed for a guest that is not off, unless that is forced."""
        if state in facts.ACTIVE and not self.force:
            raise errors.OperationFailed(
                f"{self.name} is {state} on {host}: salt-run virt.shutdown {self.name} "
                "shuts it down; force=True powers it off and removes it"
            )

    def _refuse_others(self, host: str) -> None:
        """Raises OperationFailed for one that is not, or not any more, of the deployment: somebody
        may have made it anew."""
        if self.deployment is None:
            return
        hosts, unreachable = inventory.gather(self.fleet, [host])
        if unreachable:
            raise errors.ConnectionFailed(f"{host}: {unreachable[host]}")
        [marked] = [one.deployment for one in hosts[0].guests if one.name == self.name] or [None]
        if marked != self.deployment:
            raise errors.OperationFailed(
                f"{self.name} on {host} is not of deployment {self.deployment} by now: it stays"
            )

    def _locate(self, name: str) -> tuple[str, str, str]:
        """(the guest's host, its state, the hosts that may have another definition of a guest that
        is off, and run it: in words)."""
        locations = find.locations(self.fleet)
        host = locations.host_of(name)
        hints.keep(self.fleet.opts, name, host)
        state = locations.guests[name][host]
        if state in facts.ACTIVE:
            return host, state, ""
        return host, state, "; ".join(alone.unheard(self.fleet, locations, name))

    def _key(self, host: str, unheard: str) -> tuple[bool, str | None]:
        """(whether the guest's key goes with it, why it stays when there is one that does not)."""
        if not self.delete_key:
            return False, None
        keys = KeyStore(self.fleet.opts)
        if syndic.below(self.fleet.opts, host):
            return False, f"{host} is below a syndic: its own master has the key, if it has one"
        if keys.status(self.name) is None:
            return False, None
        why = keys.stays(self.name, host)
        if why is None and unheard:
            why = f"the guest may run on a host that does not answer ({unheard})"
        return why is None, why


def _stays(why: str | None, found: Removal) -> str:
    """Why the key stays, and each disk that does."""
    words = f"; its key stays: {why}" if why else ""
    return words + "".join(f"; {path} stays: {reason}" for path, reason in found.keep.items())
