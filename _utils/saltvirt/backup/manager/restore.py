"""Restore a guest from a backup, which the target's machine exports to one hypervisor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import errors, names, settings
from saltvirt.answers.created import CreatedGuest
from saltvirt.backup.manager import backup as backup_operation
from saltvirt.backup.manager import live_restore, target_upkeep
from saltvirt.backup.model import backup_ids, calls, policy, record
from saltvirt.backup.model import listed as listed_module
from saltvirt.backup.model.answers import (
    BackupReader,
    ListedBackup,
    ShownBackup,
)
from saltvirt.backup.model.chains import DRIVE
from saltvirt.backup.model.pins import BackupPin
from saltvirt.fleet import authorization
from saltvirt.fleet import target as targets
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import find, ha_provider, inventory, unique
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.create.init import confirm_key, naming_leftovers
from saltvirt.operations.guest import lifecycle, purge
from saltvirt.operations.journal import lock
from saltvirt.placement import account
from saltvirt.placement import policy as placement
from saltvirt.revert import UndoStack


@dataclass(frozen=True)
class RestoreRequest:
    """What to restore.

    name: the guest that was backed up, or its UUID. original_name: its name at that time. backup:
    the name or number of the backup, or ``latest``. target_name: None: the default target. new: the
    name of the restored guest; None: the name of the original, which must no longer exist. host:
    the host to restore to; None: the host at the time of the backup. overcommit: also if the host
    lacks the capacity. name_is_free: the operator knows that no unreachable host has a guest of the
    name. in_place: replace the existing guest. stop: power the existing guest off for that. disk:
    only this disk. missing: only if no guest of the name exists. off: unreachable host to the proof
    that it is off. instant: start the guest immediately, and copy its blocks while it runs. seed:
    give the guest ``new`` an identity; None: if the original was seeded. damaged: restore what can
    be read of a backup that is not good.
    """

    name: str
    backup: str = backup_ids.LATEST
    target_name: str | None = None
    new: str | None = None
    host: str | None = None
    overcommit: bool = False
    name_is_free: bool = False
    in_place: bool = False
    stop: bool = False
    disk: str | None = None
    missing: bool = False
    off: Mapping[str, str] = field(default_factory=dict)
    instant: bool = False
    original_name: str | None = None
    seed: bool | None = None
    damaged: bool = False

    def check(self) -> None:
        """Raise InvalidInput for arguments that exclude each other."""
        backup_ids.refuse_conflicts(self.new, self.in_place, self.stop, self.disk)
        if self.missing and (self.in_place or self.disk):
            raise errors.InvalidInput(
                "missing=True applies to a guest that does not exist: do not combine it with "
                "in_place or disk"
            )
        if self.instant and self.damaged:
            raise errors.InvalidInput("instant=True does not support damaged backups")
        if self.instant and self.disk and not self.in_place:
            raise errors.InvalidInput(
                "instant=True restores a guest: a single disk is copied completely"
            )

    @property
    def guest_name(self) -> str:
        """The name of the restored guest."""
        return self.new or self.original_name or self.name


@dataclass(frozen=True)
class _RestorePlan:
    """A planned restore. machine: the minion of the target. host: the host of the new guest."""

    target: policy.TargetPolicy
    machine: str
    backup: ListedBackup
    host: str


def _skipped_note(skipped: Mapping[str, str]) -> str:
    """Describe what a restored guest lacks, except for its empty drives."""
    missing = {disk: reason for disk, reason in skipped.items() if not reason.startswith(DRIVE)}
    return f". Not in the backup: {_describe(missing)}" if missing else ""


def _describe(missing: Mapping[str, str]) -> str:
    return "; ".join(f"{disk} ({reason})" for disk, reason in sorted(missing.items()))


class RestoreBackup:
    """Restore a guest or a disk.

    The guest is defined and off. A disk that is not restored in place becomes a file.
    """

    def __init__(self, fleet: Fleet, request: RestoreRequest, report: Report) -> None:
        self.fleet, self.request, self.report = fleet, request, report

    def check(self) -> Checked:
        """Return what would be restored to which host, or every reason against it."""
        reasons, name = Reasons(), self.request.guest_name
        with reasons:
            self.request.check()
            self._resolve_name()
            name = self.request.guest_name
            existing = self._existing()
            if existing:
                return Checked(name, existing, nothing=True)
            with reasons:
                lock.refuse_taken(self.fleet.opts, names.guest(name))
            with reasons:
                self._check_location(reasons)
            plan = self._plan()
            reasons.raise_first()
            comment = f"would restore {self._subject} on {plan.host} from {plan.backup.backup_id}"
            comment += f", replacing the existing {'disk' if self.request.disk else 'guest'}" * (
                self.request.in_place
            )
            comment += ", and start it immediately" * self.request.instant
            details = {"host": plan.host, "target": plan.target.name}
            return Checked(name, comment, {"backup": plan.backup.backup_id}, details)
        return reasons.checked(name)

    def run(self) -> Result:
        """Restore it. Raises NotFound, InvalidInput, AlreadyExists, Refused, OperationFailed."""
        self.request.check()
        self._resolve_name()
        name = names.guest(self.request.guest_name)
        with lock.guest(self.fleet.opts, name, "virt.backup_restore"):
            try:
                existing = self._existing()
                if existing:
                    return Result(name, existing)
                self._check_location(Reasons(first=True))
                return self._create(self._plan())
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise

    def _resolve_name(self) -> None:
        """Find the name of a guest that the request names by UUID. Raises as ``_plan`` does."""
        request = self.request
        if not request.new and record.is_uuid(request.name):
            listed = self._find_backup(self._target())
            named: set[str] = set()
            if request.in_place or request.disk:
                named = {name for _, name in self._find_guests(request.name)}
            current_name = named.pop() if len(named) == 1 else listed.guest
            self.request = replace(request, original_name=current_name)

    def _find_guests(self, uuid: str | None) -> list[tuple[str, str]]:
        """Return (host, name) of the guests with this UUID, of the hosts that answer."""
        hosts, _ = inventory.gather(self.fleet)
        return [
            (host.name, guest.name) for host in hosts for guest in host.guests if guest.uuid == uuid
        ]

    def _target(self) -> policy.TargetPolicy:
        return policy.read(settings.of_master(self.fleet.opts)).target(self.request.target_name)

    def _find_backup(self, target: policy.TargetPolicy) -> ListedBackup:
        request, uuid = self.request, None
        if not record.is_uuid(request.name):
            uuid = backup_operation.uuid_of(self.fleet, request.name)
        several = backup_operation.list_at(self.fleet, target, request.name, uuid)
        if not request.in_place and any(entry.guest == request.name for entry in several):
            uuid = None  # several guests had the name: the operator names one
        return listed_module.find_listed(
            several,
            request.name,
            request.backup,
            request.disk,
            request.damaged,
            uuid,
            target=target.name,
        )

    @property
    def _subject(self) -> str:
        request = self.request
        return (
            f"disk {request.disk} of {request.guest_name}" if request.disk else request.guest_name
        )

    def _existing(self) -> str:
        """Return where the guest is, if the request is only for a missing guest; else nothing."""
        name = names.guest(self.request.guest_name)
        if not self.request.missing or name not in find.locations(self.fleet).guests:
            return ""
        host, state = find.locate(self.fleet, name)
        return f"{name} exists on {host} and is {state}"

    def _check_location(self, reasons: Reasons) -> None:
        name = names.guest(self.request.guest_name)
        if self.request.in_place:
            self._check_in_place(name, reasons)
        elif not self.request.disk:
            self._check_name_free(name)
        if self._needs_key:
            with reasons:
                targets.refuse_host(self.fleet.opts, name)
            with reasons:
                if KeyStore(self.fleet.opts).status(name) == "accepted":
                    raise errors.KeyRefused(
                        f"the master already has an accepted key for {name}, which belongs to "
                        f"another machine: if that machine no longer exists, run salt-key -d {name}"
                    )

    @property
    def _needs_key(self) -> bool:
        """Whether the host may submit a key for a minion of the new name."""
        return bool(self.request.new) and self.request.seed is not False

    def _check_in_place(self, name: str, reasons: Reasons) -> None:
        """Check whether a backup can replace the existing guest."""
        with reasons:
            ha_provider.refuse_managed(self.fleet.opts, name)
        host = lifecycle.host_for_write(self.fleet, name, self.request.host)
        request = calls.InPlaceCheckRequest(name, self.request.stop)
        answer = calls.CHECK_IN_PLACE.ask(self.fleet, host, request)
        for reason in answer.reasons:
            with reasons:
                raise errors.Refused(reason)

    def _check_name_free(self, name: str) -> None:
        locations = find.locations(self.fleet)
        hosts = ", ".join(sorted(locations.guests.get(name, {})))
        if hosts:
            raise errors.AlreadyExists(
                f"{name} already exists on {hosts}: replace it with in_place=True, or restore it "
                "under another name with new=NAME"
            )
        silent = {
            hypervisor: reason
            for hypervisor, reason in locations.unreachable.items()
            if hypervisor not in self.request.off
        }
        for host in sorted({*locations.unreachable} - {*silent}):
            self.report.step(
                "off", f"{name}: {host} does not answer, and is off: {self.request.off[host]}"
            )
        unique.check(self.fleet, name, silent, name_is_free=self.request.name_is_free)

    def _is_nowhere(self, backup: ListedBackup) -> None:
        """Raise AlreadyExists if the guest of the backup exists, possibly under another name."""
        # hosts without an answer were checked before
        for host, name in self._find_guests(backup.uuid):
            raise errors.AlreadyExists(
                f"the guest of {backup.backup_id} exists as {name} on {host}: restore it under "
                "another name with new=NAME"
            )

    def _plan(self) -> _RestorePlan:
        request = self.request
        target = self._target()
        listed = self._find_backup(target)
        if request.disk:
            listed_module.refuse_unknown_disk(listed, request.disk)
        if not (request.new or request.in_place or request.disk):
            self._is_nowhere(listed)
        host = request.host or listed.host
        if request.disk and not (request.in_place or request.host):  # beside the present guest
            candidates = {host for host, _ in self._find_guests(listed.uuid)}
            host = candidates.pop() if len(candidates) == 1 else host
        if request.in_place:
            host = find.locate(self.fleet, request.guest_name)[0]
        if host is None:
            raise errors.InvalidInput(
                f"the backup {listed.backup_id} does not name the host of its guest: add host=HOST"
            )
        self.fleet.hosts(host)
        return _RestorePlan(target, target_upkeep.target_host(self.fleet, target), listed, host)

    def _create(self, plan: _RestorePlan) -> Result:
        name, backup = self.request.guest_name, plan.backup
        text = f"restoring {self._subject} on {plan.host} from {backup.backup_id}"
        self.report.step("restore", text, backup=backup.backup_id, host=plan.host)
        reader = calls.ISSUE_READER.ask(self.fleet, plan.host, calls.ReaderRequest(once=True))
        restore = live_restore.RunningRestore(
            plan.target, str(backup.uuid), backup.backup_id, BackupPin(name, plan.host)
        )
        show_request = calls.ShowBackupRequest(
            plan.target.folder, str(backup.uuid), backup.backup_id, reader.authority,
            mounted=plan.target.mounted, pin=restore.pin if self.request.instant else None,
            disk=self.request.disk or None, damaged=self.request.damaged,
        )  # fmt: skip
        try:
            shown = calls.SHOW_BACKUP.ask(self.fleet, plan.machine, show_request)
            if shown.backup_id != backup.backup_id:
                raise errors.BadAnswer(
                    f"{plan.machine} exports {shown.backup_id} instead of {backup.backup_id}"
                )
            if self.request.disk and not self.request.in_place:
                return self._create_file(plan, shown, reader)
            restored = self._create_with_key(plan, shown, reader)
        except errors.VirtError:
            if self.request.instant:
                with contextlib.suppress(errors.VirtError):
                    live_restore.release_if_done(self.fleet, restore)
            raise
        finally:
            if not self.request.instant:  # else the guest reads it until all blocks are copied
                with contextlib.suppress(errors.VirtError):
                    hide_request = calls.HideBackupRequest(reader.authority)
                    calls.HIDE_BACKUP.ask(self.fleet, plan.machine, hide_request)
        return self._make_result(plan, restored, shown)

    def _lacks_key(self, shown: ShownBackup) -> str:
        """Return what to do about the minion of a guest whose key a purge has removed."""
        request, name = self.request, self.request.guest_name
        if (
            request.new
            or request.disk
            or not shown.seeded
            or KeyStore(self.fleet.opts).accepted(name)
        ):
            return ""
        return (
            f". This master has no accepted key for {name}: start the guest, compare `salt-key -f "
            f"{name}` with `salt-call --local key.finger` in the guest, then run `salt-key -a "
            f"{name}`"
        )

    def _make_result(
        self, plan: _RestorePlan, restored: CreatedGuest, shown: ShownBackup
    ) -> Result:
        name, backup = self.request.guest_name, plan.backup
        comment = f"restored {self._subject} on {plan.host} from {backup.backup_id}; {name} is off"
        if self.request.instant:
            comment = (
                f"{name} runs on {plan.host} from {backup.backup_id} while its blocks are copied: "
                f"virt.backup_instant {name} waits for the end"
            )
        if self.request.in_place:
            comment += (
                f". The previous state is retained: virt.backup_confirm {name} deletes it, "
                f"virt.backup_undo {name} returns to it"
            )
        details: dict[str, Any] = {
            "host": plan.host, "uuid": restored.uuid, "target": plan.target.name,
        }  # fmt: skip
        if backup.skipped and not self.request.disk:
            comment += _skipped_note(backup.skipped)
            details["skipped"] = backup.skipped
        if backup.broken_disks:
            details["damaged"] = backup.broken_disks
            comment += (
                f". Damaged: {_describe(backup.broken_disks)}" if self.request.damaged else ""
            )
        comment += self._lacks_key(shown)
        comment = "; ".join((comment, *restored.warnings))
        self.report.done(comment, backup=backup.backup_id, host=plan.host)
        return Result(name, comment, {"backup": backup.backup_id}, details)

    def _create_with_key(
        self, plan: _RestorePlan, shown: ShownBackup, reader: BackupReader
    ) -> CreatedGuest:
        """Create the guest. A copy of a seeded guest gets a key that the master has accepted."""
        if not (self._needs_key and (self.request.seed or shown.seeded)):
            return self._create_guest(plan, shown, reader)
        fleet, name, undo = self.fleet, self.request.guest_name, UndoStack()
        with naming_leftovers(undo), undo:
            with authorization.key_permission(fleet, plan.host, name, undo):
                restored = self._create_guest(plan, shown, reader)
                undo.push(f"purge {name} on {plan.host}", purge.on_host, fleet, plan.host, name)
                confirm_key(fleet, self.report, plan.host, name, restored)
            undo.success()
        return restored

    def _create_guest(
        self, plan: _RestorePlan, shown: ShownBackup, reader: BackupReader
    ) -> CreatedGuest:
        request = self.request
        restored = calls.RESTORE_GUEST.ask(
            self.fleet,
            plan.host,
            calls.RestoreGuestRequest(
                request.guest_name, shown, itself=request.new is None, in_place=request.in_place,
                stop=request.in_place and request.stop,
                disk=request.disk if request.in_place else None, instant=request.instant,
                bandwidth=plan.target.bandwidth_mib_s if request.instant else None,
                reader=reader.authority, seed=request.seed, overcommit=request.overcommit,
                placement=self._placement_terms(),
            ),
            watch=self._watch,
        )  # fmt: skip
        if restored.name != request.guest_name:
            raise errors.BadAnswer(
                f"{plan.host} answers for {restored.name} instead of {request.guest_name}"
            )
        return restored

    def _create_file(self, plan: _RestorePlan, shown: ShownBackup, reader: BackupReader) -> Result:
        name, backup = self.request.guest_name, plan.backup
        request = calls.RestoreDiskRequest(
            name, shown, str(self.request.disk), reader=reader.authority,
            overcommit=self.request.overcommit, placement=self._placement_terms(),
        )  # fmt: skip
        restored = calls.RESTORE_DISK.ask(self.fleet, plan.host, request, watch=self._watch)
        comment = (
            f"restored {self._subject} from {backup.backup_id} to {restored.path} on {plan.host}; "
            "the disk is not attached to a guest"
        )
        self.report.done(comment, backup=backup.backup_id, host=plan.host)
        details = {"host": plan.host, "target": plan.target.name}
        return Result(name, comment, {"backup": backup.backup_id, "path": restored.path}, details)

    def _placement_terms(self) -> account.PlacementTerms:
        return account.terms(None, placement.of_master(self.fleet.opts))

    @property
    def _watch(self) -> tuple[str, Callable[..., None]]:
        return f"salt/virt/{self.request.guest_name}/backup_restore/", self.report.host_event
