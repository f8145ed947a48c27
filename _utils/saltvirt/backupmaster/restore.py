"""A guest is made again from a backup: the target's machine shows it to one hypervisor."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import errors, names, settings
from saltvirt.answers.made import Made
from saltvirt.backupmaster import backup as backing_up
from saltvirt.backupmaster import instant, keep
from saltvirt.backups import ident, policy, record
from saltvirt.backups.answers import (
    BackupReader,
    GuestOver,
    ListedBackup,
    RestoredDisk,
    ShownBackup,
)
from saltvirt.backups.chains import DRIVE
from saltvirt.backups.stands import Stand
from saltvirt.fleet import authorization
from saltvirt.fleet import target as targets
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import find, inventory, keepers, lifecycle, lock, purge, unique
from saltvirt.operations.init import handed_in, naming_what_stays
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.report import Report
from saltvirt.placement import account
from saltvirt.placement import policy as placement
from saltvirt.revert import Revert


@dataclass(frozen=True)
class RestoreRequest:
    """name: of the guest that was backed up, or its UUID; called: how it was called then. backup:
    its name, its number, or ``latest``. to: the target that has it; None: the default. new: how the
    restored guest is to be called, None as the old one, which is nowhere any more. host: where it
    is to be; None: where it was. overcommit: also where that has no room. name_is_free: the
    operator knows that no silent host has a guest of the name. over: it takes the place of the
    guest that is there; stop: which is powered off for it. disk: this one alone. missing: only
    where there is no guest of the name. off: host to the proof that it is off, of hosts that are
    silent. instant: it runs at once, and its blocks come in meanwhile. seed: whether the system in
    the guest ``new`` gets an identity; None: if it was seeded.
    damaged: also of a backup that is not good, what can be read of it."""

    name: str
    backup: str = ident.LATEST
    to: str | None = None
    new: str | None = None
    host: str | None = None
    overcommit: bool = False
    name_is_free: bool = False
    over: bool = False
    stop: bool = False
    disk: str | None = None
    missing: bool = False
    off: Mapping[str, str] = field(default_factory=dict)
    instant: bool = False
    called: str | None = None
    seed: bool | None = None
    damaged: bool = False

    def check(self) -> None:
        """Raises InvalidInput for what makes no sense together."""
        ident.refuse_unfit(self.new, self.over, self.stop, self.disk)
        if self.missing and (self.over or self.disk):
            raise errors.InvalidInput(
                "missing=True is for a guest that is gone: not with over or disk"
            )
        if self.instant and self.damaged:
            raise errors.InvalidInput("instant=True is not for a backup that is damaged")
        if self.instant and self.disk and not self.over:
            raise errors.InvalidInput("instant=True is for a guest: a file is read whole")

    @property
    def made(self) -> str:
        """How the restored guest is called."""
        return self.new or self.called or self.name


@dataclass(frozen=True)
class _Planned:
    """machine: of the target. host: where the guest is made."""

    target: policy.TargetPolicy
    machine: str
    backup: ListedBackup
    host: str


def _without(skipped: Mapping[str, str]) -> str:
    """What a restored guest lacks; that its drives are empty is no news."""
    missing = {one: why for one, why in skipped.items() if not why.startswith(DRIVE)}
    return f". Not in the backup: {_words(missing)}" if missing else ""


def _words(missing: Mapping[str, str]) -> str:
    return "; ".join(f"{one} ({why})" for one, why in sorted(missing.items()))


class Restore:
    """Makes it. It is defined and off; with ``disk`` and without ``over`` it is a file."""

    def __init__(self, fleet: Fleet, request: RestoreRequest, report: Report) -> None:
        self.fleet, self.request, self.report = fleet, request, report

    def check(self) -> Checked:
        """Where it would be made of which backup, or everything that is in the way."""
        reasons, name = Reasons(), self.request.made
        with reasons:
            self.request.check()
            self._call()
            name = self.request.made
            there = self._there()
            if there:
                return Checked(name, there, nothing=True)
            with reasons:
                lock.refuse_taken(self.fleet.opts, names.guest(name))
            with reasons:
                self._has_place(reasons)
            found = self._planned()
            reasons.hold()
            comment = f"{self._what} would be made on {found.host} from {found.backup.ident}"
            comment += f" in the place of the {'disk' if self.request.disk else 'guest'} there" * (
                self.request.over
            )
            comment += ", and run while its blocks come in" * self.request.instant
            more = {"host": found.host, "target": found.target.name}
            return Checked(name, comment, {"backup": found.backup.ident}, more)
        return reasons.checked(name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, AlreadyExists, Refused, OperationFailed."""
        self.request.check()
        self._call()
        name = names.guest(self.request.made)
        with lock.guest(self.fleet.opts, name, "virt.backup_restore"):
            try:
                there = self._there()
                if there:
                    return Result(name, there)
                self._has_place(Reasons(first=True))
                return self._made(self._planned())
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise

    def _call(self) -> None:
        """How a guest is called that is meant by its UUID. Raises as ``_planned`` does."""
        asked = self.request
        if not asked.new and record.is_uuid(asked.name):
            found = self._meant(self._target())
            called = self._called_now(asked.name) if asked.over or asked.disk else None
            self.request = replace(asked, called=called or found.guest)

    def _called_now(self, uuid: str) -> str | None:
        """The name that the guest of that UUID has by now."""
        hosts, _ = inventory.gather(self.fleet)
        names = {one.name for host in hosts for one in host.guests if one.uuid == uuid}
        return names.pop() if len(names) == 1 else None

    def _target(self) -> policy.TargetPolicy:
        return policy.read(settings.of_master(self.fleet.opts)).target(self.request.to)

    def _meant(self, target: policy.TargetPolicy) -> ListedBackup:
        asked, uuid = self.request, None
        if not record.is_uuid(asked.name):
            uuid = backing_up.uuid_of(self.fleet, asked.name)
        several = backing_up.at(self.fleet, target, asked.name, uuid)
        if not asked.over and any(one.guest == asked.name for one in several):
            uuid = None  # of several that had the name the operator says which
        return ident.meant(
            several, asked.name, asked.backup, asked.disk, asked.damaged, uuid, target=target.name
        )

    @property
    def _what(self) -> str:
        asked = self.request
        return f"disk {asked.disk} of {asked.made}" if asked.disk else asked.made

    def _there(self) -> str:
        """Where the guest is, if that is all that is wanted; else nothing."""
        name = names.guest(self.request.made)
        if not self.request.missing or name not in find.locations(self.fleet).guests:
            return ""
        host, state = find.locate(self.fleet, name)
        return f"{name} is there, {state}, on {host}"

    def _has_place(self, reasons: Reasons) -> None:
        name = names.guest(self.request.made)
        if self.request.over:
            self._gives_way(name, reasons)
        elif not self.request.disk:
            self._is_free(name)
        if self._hands_in:
            with reasons:
                targets.refuse_host(self.fleet.opts, name)
            with reasons:
                if KeyStore(self.fleet.opts).status(name) == "accepted":
                    raise errors.KeyRefused(
                        f"the master already has an accepted key for {name}: it belongs to another "
                        f"machine; remove it with salt-key -d {name} if that one is gone"
                    )

    @property
    def _hands_in(self) -> bool:
        """Whether a key may come in for a minion of the new name."""
        return bool(self.request.new) and self.request.seed is not False

    def _gives_way(self, name: str, reasons: Reasons) -> None:
        """Whether the guest that is there can be put aside."""
        with reasons:
            keepers.refuse(self.fleet.opts, name)
        host = lifecycle.writes(self.fleet, name, self.request.host)
        asked = {"name": name, "stop": self.request.stop}
        found = GuestOver.from_answer(self.fleet.one(host, "virt.backup_over", asked), host)
        for why in found.why:
            with reasons:
                raise errors.Refused(why)

    def _is_free(self, name: str) -> None:
        there = find.locations(self.fleet)
        hosts = ", ".join(sorted(there.guests.get(name, {})))
        if hosts:
            raise errors.AlreadyExists(
                f"{name} is there, on {hosts}: over=True puts it aside for the backup, new=NAME "
                "restores beside it under another name"
            )
        silent = {one: why for one, why in there.unreachable.items() if one not in self.request.off}
        for host in sorted({*there.unreachable} - {*silent}):
            self.report.step("off", f"{name}: {host} is silent, and off: {self.request.off[host]}")
        unique.check(self.fleet, name, silent, sure=self.request.name_is_free)

    def _is_nowhere(self, backup: ListedBackup) -> None:
        """The guest of the backup, which may be called otherwise by now."""
        hosts, _ = inventory.gather(self.fleet)  # the silent were judged before
        for host in hosts:
            for guest in host.guests:
                if guest.uuid == backup.uuid:
                    raise errors.AlreadyExists(
                        f"the guest of {backup.ident} is called {guest.name} now, on {host.name}: "
                        "new=NAME restores beside it"
                    )

    def _where(self, backup: ListedBackup) -> str | None:
        """The only host that tells of the guest of the backup."""
        hosts, _ = inventory.gather(self.fleet)
        found = {host.name for host in hosts for one in host.guests if one.uuid == backup.uuid}
        return found.pop() if len(found) == 1 else None

    def _planned(self) -> _Planned:
        asked = self.request
        target = self._target()
        found = self._meant(target)
        if asked.disk:
            ident.refuse_unknown_disk(found, asked.disk)
        if not (asked.new or asked.over or asked.disk):
            self._is_nowhere(found)
        host = asked.host or found.host
        if asked.disk and not (asked.over or asked.host):  # beside the guest, wherever that is
            host = self._where(found) or host
        if asked.over:
            host = find.locate(self.fleet, asked.made)[0]
        if host is None:
            raise errors.InvalidInput(
                f"the backup {found.ident} does not say where its guest was: give host=HOST"
            )
        self.fleet.hosts(host)
        return _Planned(target, keep.machine(self.fleet, target), found, host)

    def _made(self, found: _Planned) -> Result:
        name, of = self.request.made, found.backup
        text = f"{self._what}: making it on {found.host} from {of.ident}"
        self.report.step("restore", text, backup=of.ident, host=found.host)
        reader = BackupReader.from_answer(
            self.fleet.one(found.host, "virt.backup_reader", {"once": True}), found.host
        )
        asked = {
            "folder": found.target.folder, "mounted": found.target.mounted, "uuid": of.uuid,
            "backup": of.ident, "reader": reader.authority,
        }  # fmt: skip
        if self.request.disk:
            asked["disk"] = self.request.disk
        if self.request.damaged:
            asked["damaged"] = True
        stood = instant.Stood(found.target, str(of.uuid), of.ident, Stand(name, found.host))
        if self.request.instant:
            asked["stand"] = stood.stand.to_answer()
        try:
            said = self.fleet.one(found.machine, "virt.backup_show", asked)
            shown = ShownBackup.from_answer(said, found.machine)
            if shown.ident != of.ident:
                raise errors.BadAnswer(f"{found.machine} shows {shown.ident}, asked was {of.ident}")
            wanted = self._wanted(said, reader)
            if self.request.disk and not self.request.over:
                return self._file(found, wanted)
            made = self._identified(found, wanted, shown)
        except errors.VirtError:
            if self.request.instant:
                with contextlib.suppress(errors.VirtError):
                    instant.settled(self.fleet, stood)
            raise
        finally:
            if not self.request.instant:  # else it is read for as long as the guest stands on it
                with contextlib.suppress(errors.VirtError):
                    hidden = {"reader": reader.authority}
                    self.fleet.one(found.machine, "virt.backup_hide", hidden)
        return self._done(found, made, shown)

    def _lacks_key(self, shown: ShownBackup) -> str:
        """What is to be done about the minion of a guest whose key a purge has removed."""
        asked, name = self.request, self.request.made
        if asked.new or asked.disk or not shown.seeded or KeyStore(self.fleet.opts).accepted(name):
            return ""
        return (
            f". This master has no accepted key of {name}: start it, compare `salt-key -f {name}` "
            f"with `salt-call --local key.finger` in it, then `salt-key -a {name}`"
        )

    def _done(self, found: _Planned, made: Made, shown: ShownBackup) -> Result:
        name, of = self.request.made, found.backup
        comment = f"{self._what} was made on {found.host} from {of.ident}; {name} is off"
        if self.request.instant:
            comment = (
                f"{name} runs on {found.host} from {of.ident}; its blocks come in meanwhile: "
                f"virt.backup_instant {name} waits for them"
            )
        if self.request.over:
            comment += (
                f". What it had before is kept: virt.backup_confirm {name} deletes that, "
                f"virt.backup_undo {name} brings it back"
            )
        more: dict[str, Any] = {
            "host": found.host, "uuid": made.uuid, "target": found.target.name,
        }  # fmt: skip
        if of.skipped and not self.request.disk:
            comment += _without(of.skipped)
            more["skipped"] = of.skipped
        if of.broken:
            more["damaged"] = of.broken
            comment += f". Damaged: {_words(of.broken)}" if self.request.damaged else ""
        comment += self._lacks_key(shown)
        comment = "; ".join((comment, *made.warnings))
        self.report.done(comment, backup=of.ident, host=found.host)
        return Result(name, comment, {"backup": of.ident}, more)

    def _identified(self, found: _Planned, wanted: dict[str, Any], shown: ShownBackup) -> Made:
        """The guest; beside its original, if that was seeded, with a key that the master has
        accepted."""
        if not (self._hands_in and (self.request.seed or shown.seeded)):
            return self._guest(found, wanted)
        fleet, name, undo = self.fleet, self.request.made, Revert()
        with naming_what_stays(undo), undo:
            with authorization.handing_in(fleet, found.host, name, undo):
                made = self._guest(found, wanted)
                undo.push(f"purge {name} on {found.host}", purge.on_host, fleet, found.host, name)
                handed_in(fleet, self.report, found.host, name, made)
            undo.success()
        return made

    def _guest(self, found: _Planned, wanted: dict[str, Any]) -> Made:
        asked = self.request
        wanted["itself"] = asked.new is None
        if asked.seed is not None:
            wanted["seed"] = asked.seed
        if asked.over:
            wanted |= {"over": True, "stop": asked.stop, "disk": asked.disk}
        if asked.instant:
            wanted |= {"instant": True, "bandwidth": found.target.bandwidth_mib_s}
        answer = self._told(found.host, "virt.backup_restore", wanted)
        made = Made.from_answer(answer, found.host)
        if made.name != asked.made:
            raise errors.BadAnswer(f"{found.host} answers for {made.name}, asked was {asked.made}")
        return made

    def _file(self, found: _Planned, wanted: dict[str, Any]) -> Result:
        name, of = self.request.made, found.backup
        wanted["disk"] = self.request.disk
        answer = self._told(found.host, "virt.backup_disk", wanted)
        made = RestoredDisk.from_answer(answer, found.host)
        comment = f"{self._what} from {of.ident} is {made.path} on {found.host}; no guest has it"
        self.report.done(comment, backup=of.ident, host=found.host)
        more = {"host": found.host, "target": found.target.name}
        return Result(name, comment, {"backup": of.ident, "path": made.path}, more)

    def _wanted(self, shown: Any, reader: BackupReader) -> dict[str, Any]:
        terms = account.terms(None, placement.of_master(self.fleet.opts))
        return {
            "name": self.request.made, "shown": shown, "overcommit": self.request.overcommit,
            "placement": terms.to_answer(), "reader": reader.authority,
        }  # fmt: skip

    def _told(self, host: str, verb: str, wanted: dict[str, Any]) -> Any:
        watch = (f"salt/virt/{self.request.made}/backup_restore/", self.report.host_says)
        return self.fleet.one(host, verb, wanted, long=True, watch=watch)
