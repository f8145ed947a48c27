"""Find what interrupted operations have left, and repair it on request."""

from __future__ import annotations

import contextlib
import functools
import shlex
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from saltvirt import errors, sanitize, units
from saltvirt.answers.guest_calls import LIST_LEFTOVERS, SWEEP_BACKUPS, HostRequest
from saltvirt.answers.guests import Leftovers
from saltvirt.answers.migration import RecoveryResult
from saltvirt.fleet import target
from saltvirt.fleet.authorization import Authorizations
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations.access import owners
from saltvirt.operations.cluster import find, ha_provider, shared_storage_check
from saltvirt.operations.core.operation import Checked, Result, failure
from saltvirt.operations.core.report import Report
from saltvirt.operations.guest import purge
from saltvirt.operations.journal import intent_log, lock
from saltvirt.operations.move import migrate, migration_end, recover, target_leftovers

# a guest's name to {host: state}
StatesByGuest = dict[str, dict[str, str]]

CREATION = "creation-interrupted"
MIGRATION = "migration-interrupted"
DUPLICATE_GUEST = "two-hosts"
KEY = "key-without-guest"
PILLAR = "pillar-without-key"
PERMISSION = "permission-expired"
GIVEN_UP = "given-up"
OWNER = "owner-not-recorded"
TARGET_FILES = "left-on-target"
ORPHAN_DISK = "disk-without-guest"
BACKUP = "backup-interrupted"
# libvirt's name for the state of a domain that does not run
OFF = "shutdown"
CODES = (
    CREATION, MIGRATION, TARGET_FILES, ORPHAN_DISK, BACKUP, DUPLICATE_GUEST, KEY, PILLAR,
    PERMISSION, GIVEN_UP, OWNER,
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A leftover.

    code: one of CODES. guest: its name. host: or None. problem: the leftover, in words. remedy:
    what the repair does, or what you have to check. evidence: what was observed. repair: repairs
    it; None: you decide; commands: for this case.
    """

    code: str
    guest: str
    problem: str
    remedy: str
    evidence: str
    host: str | None = None
    repair: Callable[[], object] | None = None
    commands: str = ""

    @property
    def id(self) -> str:
        """Return the argument of ``virt.repair finding=`` for this finding alone."""
        return ":".join(filter(None, (self.code, self.guest, self.host)))

    @property
    def command(self) -> str:
        """Return the command that repairs this finding alone."""
        # a host reports the name, and the operator pastes this line into a shell
        selector = shlex.quote(f"finding={self.id}")
        return f"salt-run virt.repair apply=True {selector}" if self.repair else self.commands

    def data(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "code": self.code, "id": self.id, "name": self.guest, "host": self.host,
            "what": self.problem, "how": self.remedy, "evidence": self.evidence,
            "command": self.command, "repairs": self.repair is not None,
        }  # fmt: skip


class Repair:
    """Shows what interrupted operations have left, and repairs it.

    name: only findings of this guest. selector: only findings with this code, or the finding with
    this id. Raises InvalidInput for an unknown one.
    """

    def __init__(
        self, fleet: Fleet, report: Report, name: str | None = None, selector: str | None = None
    ) -> None:
        select_findings([], selector=selector)
        self.fleet, self.report, self.name, self.selector = fleet, report, name, selector

    def check(self) -> Checked:
        """Return the findings, and what would be repaired."""
        findings, unreachable = self._find()
        rows = [["name", "problem", "remedy", "command"]]
        rows += [[f.guest, f.problem, f.remedy, f.command] for f in findings]
        rows += [[host, reason, "", ""] for host, reason in sorted(unreachable.items())]
        count_text = units.pluralize(len(findings), "leftover")
        comment = count_text if findings else "no leftovers"
        comment += " on the hosts that answered" if unreachable else ""
        changes = {"repaired": {f.guest: f.remedy for f in findings if f.repair}}
        details = {
            "table": rows, "columns": {"command": {"below": True}},
            "findings": [f.data() for f in findings],
        }  # fmt: skip
        return Checked("repair", comment, changes, details, complete=not unreachable)

    def run(self) -> Result:
        """Repair the findings; return what was repaired, and why others were not."""
        findings, unreachable = self._find()
        repaired, unrepaired = repair_all(findings, self.report)
        unrepaired.update({} if findings and (self.name or self.selector) else unreachable)
        comment = f"{len(repaired)} repaired" if findings or unrepaired else "no leftovers"
        comment += f", {len(unrepaired)} left" if unrepaired else ""
        comment += "".join(f"; {name}: {reason}" for name, reason in sorted(unrepaired.items()))
        changes = {"repaired": repaired} if repaired else {}
        return Result("repair", comment, changes, {"left": unrepaired}, complete=not unrepaired)

    def _find(self) -> tuple[list[Finding], dict[str, str]]:
        findings, unreachable = find_leftovers(self.fleet)
        return select_findings(findings, self.name, self.selector), unreachable


def find_leftovers(fleet: Fleet) -> tuple[list[Finding], dict[str, str]]:
    """Return (findings, host to why it did not answer). Changes nothing.

    Keys without a guest are only reported if every host has answered, including hosts that
    ``virt:hosts`` no longer matches: otherwise the guest can be on a host that did not answer.
    """
    hosts = fleet.hosts()
    findings: list[Finding] = []
    unreachable = shared_storage_check.unmatched(fleet.opts, hosts)
    answers, silent = _query_leftovers(fleet, hosts)
    unreachable.update(silent)
    for host, data in answers.items():
        findings += list(_host_findings(fleet, host, data))
        findings += list(_target_findings(fleet, host, data))
        findings += list(_disk_findings(fleet, host, data))
        findings += list(_backup_findings(fleet, host, data))
    guests = _guests(answers)
    partial = {
        finding.guest
        for finding in findings
        if finding.code not in (TARGET_FILES, ORPHAN_DISK, BACKUP)
    }
    findings += list(_abandoned(fleet, answers, unreachable, partial))
    findings += list(_unowned(fleet, guests, partial))
    findings += list(_duplicates(fleet, answers, partial))
    if not unreachable:
        findings += list(_keys(fleet, guests, hosts))
    findings += list(_permissions(fleet))
    findings += list(_pillars(fleet))
    return sorted(findings, key=lambda f: (f.guest, f.problem)), unreachable


def _query_leftovers(
    fleet: Fleet, hosts: Iterable[str]
) -> tuple[dict[str, Leftovers], dict[str, str]]:
    """Return (host to its ``virt.leftovers``, host to why it did not answer)."""
    return LIST_LEFTOVERS.gather(fleet, hosts, HostRequest(), long=False)


def _guests(answers: dict[str, Leftovers]) -> StatesByGuest:
    """Return name to {host: state}."""
    return find.by_name({host: leftovers.guests for host, leftovers in answers.items()})


def select_findings(
    findings: Iterable[Finding], name: str | None = None, selector: str | None = None
) -> list[Finding]:
    """Return the findings of one guest, and with one code or id. Raises InvalidInput for an unknown
    one."""
    if selector and str(selector).partition(":")[0] not in CODES:
        raise errors.InvalidInput(
            f"finding={selector}: no such finding; a code ({', '.join(CODES)}) or an id that "
            "salt-run virt.repair shows"
        )
    return [
        finding
        for finding in findings
        if name in (None, finding.guest) and selector in (None, finding.code, finding.id)
    ]


def repair_all(
    findings: Iterable[Finding], report: Report
) -> tuple[dict[str, str], dict[str, str]]:
    """Repair what can be repaired automatically. Return (repaired, unrepaired): the guest's name to
    a message."""
    repaired: dict[str, str] = {}
    unrepaired: dict[str, str] = {}
    for finding in findings:
        if finding.repair is None:
            commands = f" ({finding.commands})" if finding.commands else ""
            _add(unrepaired, finding.guest, f"{finding.problem}: {finding.remedy}{commands}")
            continue
        try:
            finding.repair()
            _add(repaired, finding.guest, finding.remedy)
            report.step("repaired", f"{finding.guest}: {finding.remedy}")
        except Exception as exc:
            message = failure(exc, f"the repair of {finding.guest}")
            _add(unrepaired, finding.guest, f"{finding.problem}: {message}")
    return repaired, unrepaired


def _add(messages: dict[str, str], name: str, message: str) -> None:
    """Add the message of a finding; a guest can have several."""
    messages[name] = f"{messages[name]}; {message}" if name in messages else message


def _host_findings(fleet: Fleet, host: str, data: Leftovers) -> Iterator[Finding]:
    for name in data.unfinished:
        if name in data.used:
            yield _used_finding(host, name, data.used[name])
            continue
        yield Finding(
            CREATION, name,
            f"partially created on {host} by an interrupted init",
            f"removed from {host}",
            f"its record on {host} names the process that created it, and that process has ended",
            host,
            functools.partial(_purge_partial, fleet, host, name),
        )  # fmt: skip
    for name, migration in data.migrations.items():
        if migration.at_work:
            continue
        yield Finding(
            MIGRATION, name,
            f"its migration from {host} was interrupted",
            f"manual: {migration.problem}"
            if migration.problem
            else "both hosts are asked, and the migration is completed or undone",
            f"{host} has a journal of its migration to {migration.target or 'another host'}, and "
            "no process is working on it",
            host,
            None if migration.problem else functools.partial(_end_migrations, fleet, host, name),
        )  # fmt: skip


def _used_finding(host: str, name: str, reason: str) -> Finding:
    """Return the finding for a guest whose creation was interrupted, and that was started since."""
    argument = shlex.quote(f"vm_={name}")
    return Finding(
        CREATION, name,
        f"its creation on {host} was interrupted, but {reason}",
        "manual: it may contain data, and lack its host name and its key; keep it as it is, "
        "or remove it with its disks",
        f"its record on {host} names the process that created it, and that process has ended; "
        f"libvirt there says that {reason}",
        host,
        commands=f"one of: salt {host} virt.mark_complete {argument}; "
        f"salt-run virt.purge {shlex.quote(f'name={name}')} force=True",
    )  # fmt: skip


def _backup_findings(fleet: Fleet, host: str, data: Leftovers) -> Iterator[Finding]:
    for name in data.backups:
        yield Finding(
            BACKUP, name,
            f"a backup of it on {host} was interrupted",
            f"ended on {host}, and what the guest overwrote meanwhile is removed there",
            f"{host} has a record of what the backup began, and no process is working on it",
            host,
            functools.partial(SWEEP_BACKUPS.ask, fleet, host, HostRequest()),
        )  # fmt: skip


def _target_findings(fleet: Fleet, host: str, data: Leftovers) -> Iterator[Finding]:
    for name, _, on in (key.rpartition("@") for key in data.purgeable):
        yield Finding(
            TARGET_FILES, name,
            f"{on} may have files of a migration from {host} that was ended without it",
            f"removed from {on}",
            f"{host} has a record of what was created on {on}, which did not answer then",
            on,
            functools.partial(_end_migrations, fleet, host, name),
        )  # fmt: skip
    for name in data.target_leftovers:
        yield Finding(
            TARGET_FILES, name,
            f"{host} has files of a migration of it to {host} that was undone",
            f"removed from {host}",
            f"{host} has a record of what was created there, and it was not removed",
            host,
            functools.partial(_end_migrations, fleet, None, name),
        )  # fmt: skip


def _disk_findings(fleet: Fleet, host: str, data: Leftovers) -> Iterator[Finding]:
    for name, disks_made in data.orphaned_disks.items():
        paths, unsure = disks_made.disks, disks_made.unsure
        unsure_text = "; ".join(f"{path}: {reason}" for path, reason in unsure.items())
        yield Finding(
            ORPHAN_DISK, name,
            f"{', '.join([*paths, *unsure])} on {host} was being created for it by "
            f"{disks_made.operation}, which was interrupted; no guest has it",
            f"removed from {host}" if paths else f"manual: {unsure_text}",
            f"{host} has a record of it, and the process that was creating it has ended",
            host,
            functools.partial(_remove_orphans, fleet, host, name) if paths else None,
            commands=f"salt {host} virt.remove_made {shlex.quote(name)} test=True",
        )  # fmt: skip


def _remove_orphans(fleet: Fleet, host: str, name: str) -> None:
    with _guest_lock(fleet, name):
        purge.remove_orphans(fleet, host, name)


def _end_migrations(fleet: Fleet, source: str | None, name: str) -> None:
    """End migrations of the guest from the source, if given, and clean their targets. Raises
    OperationFailed if files stay."""
    with _guest_lock(fleet, name):
        recovery = RecoveryResult()
        if source:
            recovery = migration_end.end_migration(
                fleet, source, name, migrate.locations(fleet).hosts
            )
            if recovery.outcome == migrate.MOVED:
                recover.rebind_key(fleet, name, source)
        deleted, still_retained, leftovers = target_leftovers.clean_everywhere(fleet, name)
    problems = [
        f"{on}: {reason}" for on, reason in {**recovery.leftovers_by_host, **leftovers}.items()
    ]
    if recovery.outcome != migrate.MOVED:  # the target was to remove them, but may not answer
        target_paths = {*deleted, *still_retained}
        retained = {
            path: reason for path, reason in recovery.retained.items() if path not in target_paths
        }
        problems += [target_leftovers.retained_text(retained)] if retained else []
    if problems:
        raise errors.OperationFailed("; ".join(problems))


def _abandoned(
    fleet: Fleet,
    answers: dict[str, Leftovers],
    unreachable: dict[str, str],
    partial: Container[str],
) -> Iterator[Finding]:
    """Yield guests that a host was asked to create by an operation whose end this master did not
    see."""
    for name, intent in intent_log.load_all(fleet.opts).items():
        host, function = intent.host, intent.function
        leftovers = answers.get(host)
        state = leftovers.guests.get(name) if leftovers else None
        if name in partial or state == "running" or _guest_owner(fleet, name):
            continue
        if (state is None and host not in unreachable) or intent_log.is_by_another(
            name, intent, leftovers
        ):
            continue
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(intent.since))
        silent = f"{host} does not answer now: {unreachable.get(host)}"
        status = silent if state is None else f"it is {state}"
        yield Finding(
            GIVEN_UP, name,
            f"created on {host} by {function}, which was given up or killed; {status}",
            "manual: check whether it is this guest, as another operation may have created it "
            "since; then start it, or purge it",
            f"{host} was asked to create it at {since}; this master did not see the end of that",
            host,
            commands=f"salt-run virt.vm_info {name}",
        )  # fmt: skip


def _unowned(fleet: Fleet, guests: Container[str], partial: Container[str]) -> Iterator[Finding]:
    """Yield guests that were created for users and whose owners are not recorded."""
    for name, pending_guest in owners.unrecorded(fleet.opts).items():
        if name not in guests or name in partial or _guest_owner(fleet, name):
            continue
        yield Finding(
            OWNER, name,
            f"created for {sanitize.one_line(pending_guest.owner)}, and the master did not record "
            "the owner",
            "manual: check whether it is this guest, as another operation may have created it "
            "since; until its owner is recorded it counts in the quota of that user",
            "that user called virt.init; its process ended before the owner was recorded, the host "
            "did not answer, or the master could not write",
            commands=shlex.join(["salt-run", "virt.set_owner", name, pending_guest.owner]),
        )  # fmt: skip


def _duplicates(
    fleet: Fleet, answers: dict[str, Leftovers], partial: Container[str]
) -> Iterator[Finding]:
    """Yield guests on two hosts that no operation works on. A migrating guest is on both for a
    moment, so the hosts are asked twice."""
    duplicates = _on_several_hosts(answers, partial)
    if not duplicates:
        return
    hosts = {host for host_states in duplicates.values() for host in host_states}
    fresh_answers, _ = _query_leftovers(fleet, sorted(hosts))
    for name, host_states in _on_several_hosts(fresh_answers, partial).items():
        if name not in duplicates or _guest_owner(fleet, name):
            continue
        shown = ", ".join(f"{host} ({state})" for host, state in sorted(host_states.items()))
        off = [host for host, state in sorted(host_states.items()) if state == OFF]
        undefine_commands = [
            f"salt {host} virt.undefine {shlex.quote(f'vm_={name}')}" for host in off
        ]
        inspect_commands = [
            f"salt {host} virt.vm_info {shlex.quote(f'vm_={name}')}" for host in host_states
        ]
        one_of = "one of: " if len(undefine_commands) > 1 else ""
        yield Finding(
            DUPLICATE_GUEST, name,
            f"is on more than one host: {shown}",
            "decide which one is right; stop the other one and undefine it, which keeps "
            "its disks: both may use the same ones",
            "each of these hosts lists a domain of this name, and none has a running operation or "
            "migration of it",
            commands=f"{one_of}{'; '.join(undefine_commands)}" if undefine_commands
            else "; ".join(sorted(inspect_commands)),
        )  # fmt: skip


@contextlib.contextmanager
def _guest_lock(fleet: Fleet, name: str) -> Iterator[None]:
    """Hold the guest's lock. Raises OperationFailed for a managed guest: it may exist on no host
    now, and be started at any time."""
    with lock.guest(fleet.opts, name, "virt.repair"):
        ha_provider.refuse_managed(fleet.opts, name)
        yield


def _guest_owner(fleet: Fleet, name: str) -> str | None:
    """Return the operation of this master on the guest; None if there is none, or if the name that
    a host reports is invalid."""
    with contextlib.suppress(errors.InvalidInput):
        return lock.guest_owner(fleet.opts, name)
    return None


def _on_several_hosts(answers: dict[str, Leftovers], partial: Container[str]) -> StatesByGuest:
    """Return name to {host: state} of guests that are on several hosts and not migrating."""
    busy = {
        name
        for leftovers in answers.values()
        for name in (*leftovers.migrations, *leftovers.at_work)
    }
    return {
        name: places
        for name, places in _guests(answers).items()
        if len(places) > 1 and name not in partial and name not in busy
    }


def _purge_partial(fleet: Fleet, host: str, name: str) -> None:
    with _guest_lock(fleet, name):
        purge.purge_partial(fleet, host, name)


def _keys(fleet: Fleet, guests: Container[str], hosts: Container[str]) -> Iterator[Finding]:
    keys = KeyStore(fleet.opts)
    for name in keys.guest_ids():
        if name in guests or ha_provider.manager_of(fleet.opts, name):
            continue
        host = keys.host_of(name)
        # a master with syndics does not know whether every host was asked
        sure = host in hosts and not fleet.opts.get("order_masters")
        evidence = f"this master accepted the key for a guest of {host or 'a host not recorded'}"
        yield Finding(
            KEY, name,
            "the master accepts its key, and no host has the guest",
            "key deleted" if sure
            else "check whether a machine uses it, wherever that is now; if you know that it "
            "is gone for good, remove its key from the master",
            f"{evidence}; every host that virt:hosts matches answered, none has it",
            repair=functools.partial(_delete_key, fleet, name) if sure else None,
            commands=f"salt {name} test.ping",
        )  # fmt: skip


def _delete_key(fleet: Fleet, name: str) -> None:
    """Delete the key if still no host has the guest, no operation works on it, and no minion uses
    the key."""
    with _guest_lock(fleet, name):
        hosts = fleet.hosts()
        guest_locations = find.locations(fleet, hosts)
        unreachable = {
            **guest_locations.unreachable,
            **shared_storage_check.unmatched(fleet.opts, hosts),
        }
        if unreachable:
            message = "; ".join(f"{host}: {reason}" for host, reason in sorted(unreachable.items()))
            raise errors.OperationFailed(f"its key stays: not every host answered: {message}")
        if name in guest_locations.guests:
            places = ", ".join(sorted(guest_locations.guests[name]))
            raise errors.OperationFailed(f"its key stays: it is on {places} now")
        # the master does not see the connection of a minion behind NAT
        if name in target.connected(fleet.opts, [name]) or _answers(fleet, name):
            raise errors.OperationFailed("its key stays: a minion uses it")
        KeyStore(fleet.opts).delete(name)


def _answers(fleet: Fleet, name: str) -> bool:
    """Return whether a minion with this id answers. Any minion can answer in its name; the key
    stays in that case."""
    return any(response.ok for response in fleet.ask([name], "test.ping", signed=False))


def _pillars(fleet: Fleet) -> Iterator[Finding]:
    pillars = Pillars(fleet.opts)
    for name in pillars.orphans(KeyStore(fleet.opts).accepted):
        yield Finding(
            PILLAR, name,
            "the master has a pillar for it, and its key is gone",
            "pillar removed",
            "a pillar was given to virt.init, and the key that it is bound to is not accepted",
            repair=functools.partial(pillars.remove, name),
        )  # fmt: skip


def _permissions(fleet: Fleet) -> Iterator[Finding]:
    permissions = Authorizations(fleet.opts)
    for host, name in permissions.expired():
        yield Finding(
            PERMISSION, name,
            f"a permission for {host} to submit its key has expired",
            "permission removed",
            "virt.authorize or virt.init granted it, and it was not used in time",
            host,
            functools.partial(permissions.revoke, host, name),
        )  # fmt: skip
