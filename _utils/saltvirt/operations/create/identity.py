"""Rename or clone a guest."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from saltvirt import errors, names
from saltvirt.answers.calls import Call
from saltvirt.answers.created import CreatedGuest, RenamedGuest
from saltvirt.answers.guest_calls import LIST_STATES, GuestsRequest
from saltvirt.fleet import authorization, secret, target
from saltvirt.fleet.answer import DOWN
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations.cluster import (
    failover_capacity,
    find,
    ha_provider,
    inventory,
    start_safety,
    unique,
)
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.create.init import confirm_key, deliver, naming_leftovers
from saltvirt.operations.guest import purge
from saltvirt.operations.journal import location_cache, lock
from saltvirt.operations.journal.intent_log import PendingCreate
from saltvirt.placement import policy
from saltvirt.placement.calls import CHECK_CLONE, CHECK_RENAME, CLONE, RENAME, CopyRequest
from saltvirt.revert import UndoStack
from saltvirt.spec import values


class _NewName(abc.ABC):
    """The common part of renaming and cloning.

    name, new: the current and the new name. options: further arguments of the host's function.
    name_is_free: no host that does not answer has a guest of the new name.
    """

    call: Call[CopyRequest, Any]
    check_call: Call[CopyRequest, dict[str, Any]]

    def __init__(
        self,
        fleet: Fleet,
        report: Report,
        name: str,
        new: str,
        options: dict[str, Any] | None = None,
        name_is_free: bool = False,
    ) -> None:
        self.fleet, self.report = fleet, report
        self.name, self.new = str(name), str(new)
        self.options, self.name_is_free = dict(options or {}), name_is_free
        if self.options.get("seed") is not None:
            self.options["seed"] = values.boolean(self.options["seed"], "seed")

    def check(self) -> Checked:
        """Return what the host would rename or create."""
        reasons = Reasons()
        with reasons:
            self._check_names(reasons)
            host, _, plan = self._prepare_plan(reasons)
            return self._planned(host, plan)
        return reasons.checked(self.name)

    @abc.abstractmethod
    def _planned(self, host: str, plan: dict[str, Any]) -> Checked:
        """Return the summary. plan: the host's answer to ``test=True``."""

    @contextlib.contextmanager
    def _both_locks(self) -> Iterator[None]:
        """Hold the locks of both names; a failure also fires an event."""
        opts, operation = self.fleet.opts, self.call.function
        self._refuse_same_name()
        with lock.guest(opts, self.name, operation), lock.guest(opts, self.new, operation):
            try:
                for name in (self.name, self.new):
                    ha_provider.refuse_managed(opts, name)
                yield
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise

    def _refuse_same_name(self) -> None:
        if names.guest(self.name) == names.guest(self.new):
            raise errors.InvalidInput(f"{self.name} is already its name")

    def _check_names(self, reasons: Reasons) -> None:
        """Check what a run checks when it takes the locks."""
        with reasons:
            names.guest(self.name)
        with reasons:
            names.guest(self.new)
        self._refuse_same_name()
        for name in (self.name, self.new):
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
        for name in (self.name, self.new):
            with reasons:
                ha_provider.refuse_managed(self.fleet.opts, name)

    def _prepare_plan(self, reasons: Reasons) -> tuple[str, CopyRequest, dict[str, Any]]:
        """Return (host, the request without ``test``, what it would do)."""
        fleet, new = self.fleet, self.new
        with reasons:
            target.refuse_host(fleet.opts, new)
        reasons.raise_first()
        locations = find.locations(fleet)
        with reasons:
            locations.host_of(self.name)
        with reasons:
            if new in locations.guests:
                places = ", ".join(sorted(locations.guests[new]))
                raise errors.AlreadyExists(f"{new} already exists, on {places}")
            # a renamed guest no longer has its old name
            lasting_guests = {
                guest_name: guest_hosts
                for guest_name, guest_hosts in locations.guests.items()
                if guest_name not in self._freed_names
            }
            unique.refuse_case(new, lasting_guests)
            unique.check(fleet, new, locations.unreachable, name_is_free=self.name_is_free)
            unique.refuse_key(KeyStore(fleet.opts), new)
        with reasons:
            host = locations.host_of(self.name)
            with reasons:  # its disks are written to, or read as if no process wrote to them
                start_safety.check(fleet, locations, self.name, host)
            request = self._request(host)
            hidden = self._hidden(request)
            with reasons:
                test_request = replace(secret.without(request), test=True)
                plan = self.check_call.ask(fleet, host, test_request)
            with reasons:
                secret.refuse_claimed(fleet.opts, host, hidden)
            with reasons:
                if self._hands_in(hidden):
                    authorization.refuse_others(fleet.opts, host, new)
        reasons.raise_first()
        return host, request, plan

    @property
    def _freed_names(self) -> set[str]:
        """Return the names that are free after the operation."""
        return set()

    def _request(self, _host: str) -> CopyRequest:
        """Return the request to the host."""
        return CopyRequest(vm_=self.name, name=self.new, options=self.options)

    def _hidden(self, _request: CopyRequest) -> dict[str, Any]:
        """Return the arguments that can be secret, which the host requests separately."""
        return {}

    def _hands_in(self, hidden: dict[str, Any] | None) -> bool:
        """Return whether the host submits a key, or requests secrets."""
        return bool(hidden) or self.options.get("seed") is not False

    def _key_handover(
        self, host: str, undo: UndoStack, **options: Any
    ) -> contextlib.AbstractContextManager[None]:
        """Return authorization.key_permission(), or a null context if the guest has no key and no
        secrets."""
        if not self._hands_in(options.get("secret")):
            return contextlib.nullcontext()
        return authorization.key_permission(self.fleet, host, self.new, undo, **options)


class RenameGuest(_NewName):
    """Rename a guest that is off. If the operation fails, the guest has its old name and key
    again."""

    call, check_call = RENAME, CHECK_RENAME

    @property
    def _freed_names(self) -> set[str]:
        return {self.name}

    def _planned(self, host: str, plan: dict[str, Any]) -> Checked:
        comment = f"{self.name} on {host} would be renamed to {self.new}"
        changes = {"name": {"old": self.name, "new": self.new}, **plan}
        return Checked(self.name, comment, changes, {"host": host})

    def run(self) -> Result:
        """Rename the guest. Raises NotFound, InvalidInput, AlreadyExists, KeyRefused,
        OperationFailed."""
        fleet, name, new = self.fleet, self.name, self.new
        with self._both_locks():
            host, *_ = self._prepare_plan(Reasons(first=True))
            undo = UndoStack()
            with naming_leftovers(undo), undo:
                pillar = Pillars(fleet.opts).load(name, KeyStore(fleet.opts).public)
                with self._key_handover(host, undo, pillar=pillar):
                    renamed = self._rename_on(host, (name, new), self.options)
                    undo.push(f"rename {new} back to {name}", self._rename_back, host)
                    confirm_key(fleet, self.report, host, new, renamed)
                unique.resolve(fleet, self.report, new, host, name_is_free=self.name_is_free)
                deliver(fleet, self.report, host, new)
                states = LIST_STATES.ask(fleet, host, GuestsRequest(), long=True)
                if name in states or new not in states:
                    raise errors.OperationFailed(f"{host}: libvirt has no {new} in place of {name}")
                undo.success()
            location_cache.store_host(fleet.opts, host, states)
            for stale_name in (name, new):
                location_cache.forget(fleet.opts, stale_name)
            if renamed.pub_key:
                self._delete_old_key(host)
        changes = {"name": {"old": name, "new": new}, "disks": [*renamed.disks]}
        comment = f"{name} on {host} was renamed to {new}"
        for path, reason in sorted(renamed.unrenamed.items()):
            comment += f"; {path} keeps its name: {reason}"
        comment = "; ".join((comment, *renamed.warnings))
        return Result(new, comment, changes, {"host": host})

    def _rename_on(self, host: str, pair: tuple[str, str], options: dict[str, Any]) -> RenamedGuest:
        watch = (f"salt/virt/{pair[1]}/rename/", self.report.host_event)
        request = CopyRequest(vm_=pair[0], name=pair[1], approve_key=True, options=options)
        return RENAME.ask(self.fleet, host, request, watch=watch)

    def _rename_back(self, host: str) -> None:
        """Restore the old name; a minion in the guest gets new keys again."""
        fleet, name = self.fleet, self.name
        pillar = Pillars(fleet.opts).load(name, KeyStore(fleet.opts).public)
        with authorization.Authorizations(fleet.opts).temporary(host, name, pillar, replace=True):
            renamed = self._rename_on(host, (self.new, name), {})
            confirm_key(fleet, self.report, host, name, renamed)

    def _delete_old_key(self, host: str) -> None:
        """Delete the key of the old name if it belongs to this guest."""
        keys, name = KeyStore(self.fleet.opts), self.name
        reason = keys.retain_reason(name, host) if keys.status(name) else None
        if reason:
            self.report.step("warning", f"{name}: its key stays: {reason}")
            return
        keys.delete(name)
        Pillars(self.fleet.opts).remove(name)


class CloneGuest(_NewName):
    """Copy a guest that is off, on its host. start: whether to start the copy. provider: its
    failover reserve limits the copy, unless ``overcommit`` is given."""

    call, check_call = CLONE, CHECK_CLONE

    def __init__(
        self,
        *args: Any,
        start: bool = False,
        provider: ha_provider.HaProvider | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.start, self.provider = start, None if self.options.get("overcommit") else provider

    def _reserve_warning(self, host: str) -> str:
        """Return the warning about the failover reserve. Raises Refused if the reserve is
        enforced."""
        runs = bool(self.start or self.options.get("autostart"))
        return failover_capacity.on_current_host(
            self.provider, self.fleet, host, self.name, self.new, runs
        )

    def _planned(self, host: str, plan: dict[str, Any]) -> Checked:
        comment = f"{self.name} would be copied to {self.new} on {host}"
        comment = "; ".join(filter(None, (comment, self._reserve_warning(host))))
        return Checked(self.new, comment, {"created": plan}, {"host": host})

    def run(self) -> Result:
        """Clone the guest. Raises NotFound, InvalidInput, AlreadyExists, KeyRefused,
        OperationFailed, Refused."""
        fleet, report, new = self.fleet, self.report, self.new
        with self._both_locks():
            host, request, _ = self._prepare_plan(Reasons(first=True))
            warning = self._reserve_warning(host)
            request, hidden = secret.split(replace(request, start=False, approve_key=True))
            undo = UndoStack()
            intent_args = fleet.opts, new, "virt.clone", undo
            with naming_leftovers(undo), PendingCreate(*intent_args) as pending_create, undo:
                pending_create.record_host(host)
                with self._key_handover(host, undo, secret=hidden):
                    cloned = self._clone_on(host, request)
                    undo.push(f"purge {new} on {host}", purge.on_host, fleet, host, new)
                    confirm_key(fleet, report, host, new, cloned)
                unique.resolve(fleet, report, new, host, name_is_free=self.name_is_free)
                pending_create.mark_started()
                start_policy = policy.of_master(fleet.opts) if self.start else None
                state = deliver(fleet, report, host, new, start_policy=start_policy)
                undo.success()
        comment = f"{new}, a copy of {self.name}, is {state} on {host}"
        comment = "; ".join(filter(None, (comment, warning, *cloned.warnings)))
        return Result(new, comment, {"created": cloned.to_answer()}, {"host": host, "state": state})

    def _request(self, host: str) -> CopyRequest:
        terms = inventory.terms(self.fleet, host, policy.of_master(self.fleet.opts))
        return replace(super()._request(host), placement=terms)

    def _hidden(self, request: CopyRequest) -> dict[str, Any]:
        return secret.split(request)[1]

    def _clone_on(self, host: str, request: CopyRequest) -> CreatedGuest:
        """Return the host's answer. Raises OperationFailed, ConnectionFailed with what to do."""
        new, watch = self.new, (f"salt/virt/{self.new}/clone/", self.report.host_event)
        answer = CLONE.reply(self.fleet, host, request, watch=watch)
        if answer.kind == DOWN:
            raise errors.OperationFailed(f"{host}: {answer.error}; nothing was created")
        try:
            return answer.get()
        except errors.ConnectionFailed as exc:
            raise errors.ConnectionFailed(
                f"{exc.text}; it may be creating {new}, or have created it: salt-run virt.repair "
                f"name={new} shows what is left of it"
            ) from exc
