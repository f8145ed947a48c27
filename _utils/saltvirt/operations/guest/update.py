"""Change a guest by its name, on whichever host it is: its definition, its autostart and the sizes
of its disks."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from saltvirt import errors, names, units
from saltvirt.answers.guest_calls import LIST_STATES, GuestsRequest
from saltvirt.answers.guest_changes import UpdatedGuest
from saltvirt.diff import pending
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find, ha_provider
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.guest import lifecycle
from saltvirt.operations.journal import location_cache, lock
from saltvirt.placement import facts
from saltvirt.placement.calls import RESIZE_DISK, UPDATE, ResizeRequest, UpdateRequest
from saltvirt.spec import base, deploy, guest, memory

Outcome = TypeVar("Outcome")

# groups of arguments that name profiles, which only the host knows
_PROFILES = frozenset({"disk", "disk_profile", "nic", "nic_profile"})
# arguments of a new guest that an update can take, too
_DEPLOY = frozenset({"saltenv"})
_FOR_NEW = frozenset(deploy.DeploySpec.keys()) - _DEPLOY
# what else virt.update of the runner takes
_RUNNER_WORDS = (
    "name",
    "test",
    "overcommit",
    "force",
    "at_once",
    "confirm",
    "host",
    "label",
    "state",
)


def arguments(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an update without those that are not given. Raises InvalidInput for
    an argument that is unknown, invalid, secret, or for new guests only."""
    given = {word: value for word, value in values.items() if value is not None}
    _refuse_unknown(given)
    for word in ("cpu", "mem"):
        # the host would leave it unchanged
        if not given.get(word, True):
            raise errors.InvalidInput(f"{word} cannot be {given[word]!r}: leave it out to keep it")
    _check_memory(given.get("mem"))
    for word in sorted(_FOR_NEW & set(given)):
        raise errors.InvalidInput(f"{word} is for new guests: an update cannot change it")
    if not set(given) - _HOST_ONLY - _DEPLOY and not given.keys() & _DETACHING:
        raise errors.InvalidInput(
            f"{name}: nothing to change: give cpu, mem, disks, interfaces or another argument of "
            "virt.update"
        )
    graphics = given.get("graphics")
    if isinstance(graphics, dict) and graphics.get("password"):
        raise errors.InvalidInput(
            "graphics: all minions could read the password in the job: set it with the state "
            "virt.running, and the password in the host's pillar"
        )
    if not _PROFILES & set(given):
        spec = {word: value for word, value in given.items() if word not in _HOST_ONLY}
        guest.parse(name, update=True, **spec)
    return given


_DETACHING = {"detach", "detach_interfaces"}
_HOST_ONLY = frozenset({"detach", "detach_interfaces", "live"})


def _refuse_unknown(given: dict[str, Any]) -> None:
    """Raise InvalidInput, with the closest valid word, for an unknown argument."""
    accepted = set(guest.arguments()) | _HOST_ONLY
    for word in sorted(given.keys() - accepted):
        raise base.unknown(word, (accepted - _FOR_NEW).union(_RUNNER_WORDS), "virt.update")


def _check_memory(mem: object) -> None:
    """Raise InvalidInput for less memory than a guest can start with."""
    size = mem.get("boot") or mem.get("current") if isinstance(mem, dict) else mem
    if size is not None:
        memory.kib_at_start(size)


class _GuestChange(abc.ABC):
    """The common part of operations that change a guest. overcommit: the host does not need enough
    free capacity; None: as the host is configured."""

    verb = "virt.update"

    def __init__(self, fleet: Fleet, name: str, overcommit: bool | None = None) -> None:
        self.fleet, self.name, self.overcommit = fleet, str(name), overcommit

    def check(self) -> Checked:
        """Return what would change."""
        reasons = Reasons()
        with reasons:
            name = names.existing_guest(self.name)
            self._validate()
            with lock.guest(self.fleet.opts, name, self.verb):
                return self._where_it_is(name, self._planned)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Change the guest. Raises NotFound, InvalidInput, NoRoom, Refused, OperationFailed."""
        name = names.existing_guest(self.name)
        self._validate()
        with lock.guest(self.fleet.opts, name, self.verb):
            return self._where_it_is(name, self._done)

    def _where_it_is(self, name: str, act: Callable[[str, str], Outcome]) -> Outcome:
        """Return what ``act`` returns for (host, state) of the guest. A guest that has left the
        host since is followed, once."""
        host, state = self._locate(name)
        try:
            return act(host, state)
        except errors.VirtError:
            states = LIST_STATES.reply(self.fleet, host, GuestsRequest())
            if not states.ok or name in states.get():
                raise
            location_cache.forget(self.fleet.opts, name)
        return act(*self._locate(name))

    @abc.abstractmethod
    def _validate(self) -> None:
        """Raise InvalidInput before any host is asked."""

    @property
    def _writes_disks(self) -> bool:
        """Whether the change writes to disks."""
        return True

    def _locate(self, name: str) -> tuple[str, str]:
        """Return (host, state) of the guest, which must not run elsewhere if its disks are written
        to."""
        if self._writes_disks:
            return lifecycle.locate_for_write(self.fleet, name)
        return find.locate(self.fleet, name)

    @abc.abstractmethod
    def _planned(self, host: str, state: str) -> Checked:
        """Return what would change."""

    @abc.abstractmethod
    def _done(self, host: str, state: str) -> Result:
        """Change the guest."""


class UpdateGuest(_GuestChange):
    """Change the definition of a guest, and the running guest where libvirt can. options: arguments
    of the host's ``virt.update``. force: also give the guest the MAC of another one."""

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        options: dict[str, Any],
        overcommit: bool | None = None,
        force: bool = False,
    ) -> None:
        super().__init__(fleet, name, overcommit)
        self.options, self.force = options, force

    def _validate(self) -> None:
        self.options = arguments(self.name, self.options)
        if self.options.get("autostart"):
            ha_provider.refuse_managed(self.fleet.opts, self.name)

    @property
    def _writes_disks(self) -> bool:
        return "disks" in self.options

    def _request(self) -> UpdateRequest:
        return UpdateRequest(
            name=self.name,
            placement=lifecycle.placement_terms(self.fleet),
            overcommit=self.overcommit,
            options=self.options,
        )

    def _plan(self, host: str) -> UpdatedGuest:
        """Return what the host would change. Raises AlreadyExists, NotFound, Refused."""
        planned = UPDATE.ask(self.fleet, host, replace(self._request(), test=True), long=False)
        self._require(host, planned)
        return planned

    def _require(self, host: str, planned: UpdatedGuest) -> None:
        """Raise an error if the change is not the requested one. Raises NotFound if the guest does
        not have what is to be detached, or the host not what is to be booted; Refused for the MAC
        of another guest."""
        if planned.missing:
            missing = ", ".join(planned.missing)
            raise errors.NotFound(f"{self.name} on {host} has no {missing} to detach")
        if planned.absent:
            raise errors.NotFound(f"{host} does not have {', '.join(planned.absent)} to boot from")
        if planned.duplicates and not self.force:
            raise errors.Refused(
                f"{self.name} on {host} would have the MAC {', '.join(planned.duplicates)}: "
                "force=True allows it"
            )

    @property
    def _plans_first(self) -> bool:
        """Whether a change asks for its plan first."""
        return any(self.options.get(word) for word in (*_DETACHING, "boot", "interfaces"))

    def _planned(self, host: str, state: str) -> Checked:
        planned = self._plan(host)
        comment, changes, details = self._described(host, state, planned, "would be changed")
        return Checked(self.name, comment, changes, details, nothing=not changes)

    def _done(self, host: str, state: str) -> Result:
        if self._plans_first:
            self._plan(host)
        return self._apply(host, state)

    def _apply(self, host: str, state: str) -> Result:
        """Have the host change the guest."""
        updated = UPDATE.ask(self.fleet, host, self._request())
        comment, changes, details = self._described(host, state, updated, "was changed")
        return Result(self.name, comment, changes, details, complete=not updated.errors)

    def _described(
        self, host: str, state: str, updated: UpdatedGuest, done: str
    ) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Return (the comment, the changes, the details) of the result."""
        active = state in facts.ACTIVE
        changes = {item.path: {"old": item.old, "new": item.new} for item in updated.changes}
        now = {
            item.path: (item.old, item.new)
            for item in updated.changes
            if item.live or not active or item.path == "autostart"
        }
        subject = f"{self.name} on {host}"
        if now:
            comment = f"{subject} {done}: {', '.join(pending.change_texts(now))}"
        else:
            comment = f"the definition of {subject} {done}" if changes else f"{subject} is as given"
        refused = "; ".join(updated.errors)
        refused = f"the running guest refused: {refused}" if refused else ""
        parts = (comment, pending.sentence(updated.pending), refused, *updated.warnings)
        comment = "; ".join(filter(None, parts))
        return comment, changes, _details(host, state, updated.pending, updated.errors)


def _details(
    host: str, state: str, waiting: Iterable[str] = (), failures: Iterable[str] = ()
) -> dict[str, Any]:
    details = {"host": host, "state": state, "pending": list(waiting)}
    return {**details, "errors": list(failures)} if failures else details


class SetAutostart(UpdateGuest):
    """Set whether a guest starts with its host."""

    verb = "virt.autostart"

    def __init__(self, fleet: Fleet, name: str, enabled: bool) -> None:
        super().__init__(fleet, name, {"autostart": enabled})

    def _described(
        self, host: str, state: str, updated: UpdatedGuest, done: str
    ) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Return the result without changes of other settings that wait for the next start."""
        changes = {item.path: {"old": item.old, "new": item.new} for item in updated.changes}
        does = "starts" if self.options["autostart"] else "does not start"
        comment = f"{self.name} {does} with its host {host}"
        if not changes:
            comment += " already"
        elif done != "was changed":
            does = "would start" if self.options["autostart"] else "would not start"
            comment = f"{self.name} {does} with its host {host}"
        return comment, changes, _details(host, state, updated.pending, updated.errors)


class ResizeDisk(_GuestChange):
    """Grow a disk of a guest. disk: its name or target. size: MiB, or a size with a unit."""

    verb = "virt.resize"

    def __init__(
        self, fleet: Fleet, name: str, disk: str, size: Any, overcommit: bool | None = None
    ) -> None:
        super().__init__(fleet, name, overcommit)
        self.disk, self.size = str(disk), size

    def _validate(self) -> None:
        units.parse_bytes(self.size)
        if self.disk in ("", "None"):
            raise errors.InvalidInput("disk must be the name or the target of a disk")

    def _ask(self, host: str, *, test: bool) -> tuple[int, int]:
        """Return the size of the disk in bytes (before, after)."""
        request = ResizeRequest(
            vm_=self.name,
            disk=self.disk,
            size=self.size,
            placement=lifecycle.placement_terms(self.fleet),
            overcommit=self.overcommit,
            test=test,
        )
        resized = RESIZE_DISK.ask(self.fleet, host, request, long=not test)
        return resized.before, resized.after

    def _described(
        self, host: str, before: int, after: int, done: str
    ) -> tuple[str, dict[str, Any]]:
        subject = f"disk {self.disk} of {self.name} on {host}"
        sizes = [units.human_bytes(size) for size in (before, after)]
        if before == after:
            return f"{subject} has {sizes[0]} already", {}
        comment = (
            f"{subject} {done} from {sizes[0]} to {sizes[1]}; grow its partitions and file systems "
            "in the guest"
        )
        return comment, {f"disks:{self.disk}:size_bytes": {"old": before, "new": after}}

    def _planned(self, host: str, state: str) -> Checked:
        before, after = self._ask(host, test=True)
        comment, changes = self._described(host, before, after, "would grow")
        return Checked(self.name, comment, changes, _details(host, state), nothing=not changes)

    def _done(self, host: str, state: str) -> Result:
        before, after = self._ask(host, test=False)
        comment, changes = self._described(host, before, after, "grew")
        return Result(self.name, comment, changes, _details(host, state))
