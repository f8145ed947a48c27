"""Migrate a guest: find it, choose the target, and let its host migrate it.

The host confirms the migration with both libvirts before it reports it, so nothing is queried
afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import errors, names
from saltvirt.answers.calls import HostAnswer
from saltvirt.answers.guest_calls import HostRequest, NamedGuestRequest
from saltvirt.answers.guests import MigrationFacts
from saltvirt.answers.migration import MigrationCheck, MigrationResult, RecoveryResult
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.migration.calls import (
    ABORT_MIGRATION,
    CHECK_MIGRATION,
    LIST_UNFINISHED,
    MIGRATE,
    MigrateRequest,
)
from saltvirt.operations.cluster import failover_capacity, find, ha_provider, inventory
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.journal import location_cache, lock, slots
from saltvirt.operations.move import migration_end, moves, target_leftovers
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy

MOVED = "moved"
# the host detects a dead peer after 20 s and libvirt after 30 s: wait longer than both
SILENT_S = 60


@dataclass(frozen=True)
class MigrationLocations(find.Locations):
    """unfinished: name to the host with an interrupted migration of it. target_leftovers: name to
    the hosts with files of an undone migration. hosts: id to the host's answer."""

    unfinished: dict[str, str] = field(default_factory=dict)
    target_leftovers: dict[str, list[str]] = field(default_factory=dict)
    hosts: dict[str, MigrationFacts] = field(default_factory=dict)


def locations(fleet: Fleet, only: list[str] | None = None) -> MigrationLocations:
    """Return where all guests are, with the facts of their hosts. only: ask only these hosts."""
    hosts, unreachable = target_leftovers.locations(fleet, only)
    noted: dict[str, list[str]] = {}
    for host, host_facts in hosts.items():
        for name in host_facts.target_leftovers:
            noted.setdefault(name, []).append(host)
    for host, host_facts in hosts.items():
        location_cache.store_host(fleet.opts, host, host_facts.guests)
    return MigrationLocations(
        find.by_name({host: host_facts.guests for host, host_facts in hosts.items()}),
        unreachable,
        last_seen=find.last_seen_lookup(fleet.opts, unreachable),
        unfinished=_unfinished_on(hosts),
        target_leftovers=noted,
        hosts=hosts,
    )


def _unfinished_on(hosts: dict[str, MigrationFacts]) -> dict[str, str]:
    """Return name to the host with an interrupted migration of the guest: of several, the one that
    has the guest, because it may be migrating from there. Ending that migration ends the others."""
    sources: dict[str, str] = {}
    for host, host_facts in hosts.items():
        for name in host_facts.unfinished:
            if name not in sources or name in host_facts.guests:
                sources[name] = host
    return sources


def abort(fleet: Fleet, name: str) -> tuple[str, dict[str, str]]:
    """Abort a running migration; return (the host on which the guest stays, {host: why files stay
    there}).

    During a migration, the guest is on two hosts, and only its source knows of the migration.
    """
    name = names.guest(str(name))
    source = _source(fleet, name)
    ABORT_MIGRATION.ask(fleet, source, NamedGuestRequest(name))
    *_, leftovers = target_leftovers.clean_everywhere(fleet, name)
    return source, leftovers


def _source(fleet: Fleet, name: str) -> str:
    """Return the host that migrates the guest. Raises OperationFailed if there is none."""
    guest_locations = locations(fleet)
    source = guest_locations.unfinished.get(name)
    if source is None:
        silent = guest_locations.unreachable_text()
        hosts = f"no host that answers ({silent})" if silent else "no host"
        raise errors.OperationFailed(f"{hosts} has a migration of {name} under way")
    return source


def check_abort(fleet: Fleet, name: str) -> Checked:
    """Return which migration :func:`abort` would abort, or the reason against it. Changes
    nothing."""
    reasons = Reasons()
    with reasons:
        name = names.guest(str(name))
        source = _source(fleet, name)
        migrations, _ = LIST_UNFINISHED.gather(fleet, [source], HostRequest())
        migration = migrations.get(source, {}).get(name)
        if migration and not migration.at_work:
            raise errors.OperationFailed(
                f"the migration of {name} from {source} is not under way but interrupted: salt-run "
                f"virt.migrate_recover {name} ends it"
            )
        comment = f"the migration of {name} from {source} would be aborted; {name} stays there"
        return Checked(name, comment, details={"host": source})
    return reasons.checked(str(name))


@dataclass(frozen=True)
class Targets:
    """names: the hosts that can take the guest, best first. terms: host to its placement terms.
    warnings: host to a warning about the guest there."""

    names: list[str]
    terms: dict[str, account.PlacementTerms]
    warnings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MovePlan:
    """A planned migration from the source, as one of many from one query of the hosts. evacuated:
    the reason of the source's maintenance; if the source is no longer in maintenance for this
    reason, the guest stays. None: the source need not be in maintenance."""

    source: str
    targets: Targets
    evacuated: str | None = None


# guest to its plan
Plans = dict[str, MovePlan]


def planned(
    cloud: dict[str, facts.Host],
    source: str,
    decision: choose.PlacementDecision,
    policy: PlacementPolicy,
    first: str | None = None,
) -> MovePlan:
    """Return the MovePlan for a Decision over the cloud (name to Host). first: this host precedes
    all others."""
    ranked = [candidate.host for candidate in decision.ranked]
    ranked.sort(key=lambda host: host != first)
    terms = {host: account.terms(cloud[host], policy) for host in ranked}
    return MovePlan(source, Targets(ranked, terms))


def targets(
    fleet: Fleet,
    policy: PlacementPolicy,
    name: str,
    source: str,
    request: MigrationRequest,
    provider: ha_provider.HaProvider | None = None,
) -> Targets:
    """Return the Targets for a guest on the source. provider: its failover reserve limits the
    targets, unless ``overcommit`` is given.

    The guest's needs are read from its definition, and the placement arguments of virt.init from
    its metadata, so that its next host fulfils the same conditions. Raises Refused with each host's
    reason if no target remains.
    """
    reserve_provider = (
        provider if provider and provider.has_reserve and not request.overcommit else None
    )
    needed_hosts = {source, request.target} if request.target and not request.allow_others else None
    query_hosts = fleet.hosts() if reserve_provider or needed_hosts is None else needed_hosts
    hosts, unreachable = inventory.gather(fleet, sorted(query_hosts))
    reserve = reserve_provider.capacity_reserve(hosts) if reserve_provider else None
    if needed_hosts is not None:
        hosts = [host for host in hosts if host.name in needed_hosts]
        unreachable = {host: reason for host, reason in unreachable.items() if host in needed_hosts}
    source_host = next((host for host in hosts if host.name == source), None)
    if source_host is None:
        raise errors.ConnectionFailed(f"{source}: {unreachable.get(source, 'it did not answer')}")
    guest = next((guest for guest in source_host.guests if guest.name == name), None)
    if guest is None:
        raise errors.NotFound(f"{name} is no longer on {source}: run the command again")
    needs = facts.of_guest(guest, source_host)
    # virt:exclude does not apply to a host that the operator names
    policy = replace(policy, exclude=tuple(h for h in policy.exclude if h != request.target))
    other_hosts = [host for host in hosts if host.name != source]
    decision = choose.choose(other_hosts, needs, policy)
    decision, warnings = failover_capacity.filter_moves(decision, reserve, guest, request.target)
    ranked = [candidate.host for candidate in decision.ranked]
    target_usable = request.target in ranked or (
        request.overcommit and request.target not in unreachable
    )
    if request.target and target_usable:
        ranked = [request.target, *(host for host in ranked if host != request.target)]
    if not ranked:
        decision.rejected.update((host, ("down", reason)) for host, reason in unreachable.items())
        reasons = decision.reasons() or "there is no other host"
        raise errors.Refused(f"no host can take {name} from {source}: {reasons}")
    terms = {host.name: account.terms(host, policy) for host in other_hosts}
    return Targets(ranked, terms, warnings)


@dataclass(frozen=True)
class MigrationRequest:
    """The requested target. target: the named host, or None. allow_others: another host may be
    chosen if the target refuses. overcommit: ignore the target's capacity and the guest's placement
    conditions."""

    target: str | None = None
    allow_others: bool = False
    overcommit: bool = False


def parse_request(
    target: str | None, options: dict[str, Any], allow_others: bool = False
) -> MigrationRequest:
    """Return the parsed request. Raises InvalidInput."""
    overcommit = options.get("overcommit", False)
    if not isinstance(overcommit, bool):
        raise errors.InvalidInput(f"overcommit {overcommit!r} must be True or False")
    if overcommit and not target:
        raise errors.InvalidInput("overcommit=True requires a target: name the host")
    return MigrationRequest(target, allow_others or not target, overcommit)


def examine(fleet: Fleet, name: str, target: str | None = None) -> MigrationCheck:
    """Return the answer of ``virt.migratable``, with why the target refuses the guest. Without a
    target, only the guest is checked."""
    guest_locations, source = _locate(fleet, name, target)
    return _examine(fleet, guest_locations, source, _request(guest_locations, name, target))


def pinned(fleet: Fleet, host: str, guests: list[str]) -> dict[str, str]:
    """Return guest to the reasons why it cannot migrate, as reported by the host."""
    requests = [MigrateRequest(vm_=name) for name in guests]
    answers = CHECK_MIGRATION.each(fleet, host, requests) if requests else []
    pinned_guests: dict[str, str] = {}
    for name, answer in zip(guests, answers, strict=True):
        try:
            examination = answer.get()
        except errors.VirtError as exc:
            pinned_guests[name] = exc.text
            continue
        if not examination.migratable:
            pinned_guests[name] = "; ".join(examination.reasons)
    return pinned_guests


def verdict(name: str, target: str, examination: MigrationCheck) -> str:
    """Return the answer of ``virt.migratable`` as a sentence."""
    destination = f" to {target}" if target else ""
    if not examination.migratable:
        return f"{name} cannot be moved{destination}: " + "; ".join(examination.reasons)
    parts = [f"{name} can be moved{destination}"]
    if examination.disks:
        methods = [f"{disk} {method}" for disk, method in examination.disks.items()]
        parts.append(f"disks: {', '.join(methods)}")
    if examination.certificates:
        first = min(examination.certificates, key=lambda certificate: certificate.valid_until)
        parts.append(f"certificates are valid until {first.valid_until[:10]} ({first.host})")
    return "; ".join(parts)


def _locate(fleet: Fleet, name: str, target: str | None) -> tuple[MigrationLocations, str]:
    """Return (MigrationLocations, the guest's host)."""
    fleet.hosts(target)
    guest_locations = locations(fleet)
    return guest_locations, guest_locations.host_of(names.guest(str(name)))


def _examine(
    fleet: Fleet, guest_locations: MigrationLocations, source: str, request: MigrateRequest
) -> MigrationCheck:
    examination = CHECK_MIGRATION.ask(fleet, source, request)
    reason = _closed_reason(guest_locations, request.target)
    if reason is None:
        return examination
    return replace(examination, migratable=False, reasons=(reason, *examination.reasons))


def _all_reasons(
    fleet: Fleet,
    guest_locations: MigrationLocations,
    source: str,
    request: MigrateRequest,
    refusal: str,
) -> list[str]:
    """Return why a named target refuses the guest: the refusal, and the reasons of both hosts. A
    request without a target does not ask the target."""
    try:
        host_reasons = _examine(fleet, guest_locations, source, request).reasons
    except errors.VirtError as exc:
        host_reasons = (exc.text,)
    return list(dict.fromkeys([refusal, *host_reasons]))


def _request(
    guest_locations: MigrationLocations,
    name: str,
    target: str | None,
    options: dict[str, Any] | None = None,
    terms: account.PlacementTerms | None = None,
) -> MigrateRequest:
    """Return the request to the source, with facts that the target reported about itself, and that
    its libvirt does not tell the source. An option of the user replaces a fact."""
    options = options or {}
    reported: dict[str, Any] = {"placement": terms}
    if target in guest_locations.hosts:
        host_facts = guest_locations.hosts[target]
        reported.update(
            ratios=host_facts.ratios or None,
            limits=host_facts.limits or None,
            certificates=host_facts.certificates,
            address=host_facts.address or None,
            unmounted=host_facts.unmounted,
        )
    reported = {key: value for key, value in reported.items() if key not in options}
    return MigrateRequest(vm_=name, target=target, options=options, **reported)


def _closed_reason(guest_locations: MigrationLocations, host: str | None) -> str | None:
    """Return why a host accepts no guests at all, or None."""
    if host in guest_locations.unreachable:
        return f"{host}: {guest_locations.unreachable[host]}"
    reason = guest_locations.hosts[host].maintenance if host in guest_locations.hosts else None
    return f"{host} is in maintenance: {reason}" if reason else None


class Migrate:
    """Migrates a guest to the target, or to a host that placement chooses.

    options: further arguments of the host's ``virt.migrate``. allow_others: choose another host if
    the target refuses; the default without a target. plan: the plan of this migration as one of
    many, so that not all hosts are queried. provider: manages the failover reserve.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        name: str,
        target: str | None,
        report: Report,
        options: dict[str, Any] | None = None,
        allow_others: bool = False,
        plan: MovePlan | None = None,
        provider: ha_provider.HaProvider | None = None,
    ) -> None:
        self.plan, self.provider = plan, provider
        self.fleet, self.policy, self.report = fleet, policy, report
        self.name, self.target = str(name), target or None
        self.options, self.allow_others = dict(options or {}), allow_others
        self.request, self.warning = MigrationRequest(), ""
        self._has_waited = False

    def check(self) -> Checked:
        """Return the target, or all reasons against the migration."""
        name, reasons = self.name, Reasons()
        with reasons:
            with reasons:
                lock.refuse_taken(self.fleet.opts, names.guest(name))
            with reasons:
                ha_provider.refuse_managed(self.fleet.opts, names.guest(name))
            source, target, examination = self._plan()
            if examination and not examination.migratable:
                all_reasons = (*reasons.texts, *examination.reasons)
                text = f"{name} cannot be moved to {target}: {'; '.join(all_reasons)}"
                return Checked(name, text, reasons=all_reasons)
            reasons.raise_first()
            if not examination:
                text = f"{name} is on {source} already"
                return Checked(name, text, details={"host": source}, nothing=True)
            text = f"{name} would be moved from {source} to {target}{self.warning}"
            details = {"host": source, "disks": examination.disks}
            return Checked(name, text, _changes(source, target), details)
        return reasons.checked(name)

    def _plan(self) -> tuple[str, str, MigrationCheck | None]:
        """Return (source, target, answer of ``virt.migratable``; None if the guest is already on
        the target)."""
        fleet, target = self.fleet, self.target
        request = parse_request(target, self.options, self.allow_others)
        guest_locations, source = _locate(fleet, self.name, target)
        if source == target:
            return source, source, None
        refusal_text = _closed_reason(guest_locations, target)
        if target and refusal_text:
            # the source does not try to reach a host that is down: check only the guest
            reached = None if target in guest_locations.unreachable else target
            migration = _request(guest_locations, self.name, reached, self.options)
            reasons = _all_reasons(fleet, guest_locations, source, migration, refusal_text)
            return source, target, MigrationCheck(False, tuple(reasons))
        try:
            candidates = targets(fleet, self.policy, self.name, source, request, self.provider)
        except errors.Refused as exc:
            if not target:
                raise
            migration = _request(guest_locations, self.name, target, self.options)
            reasons = _all_reasons(fleet, guest_locations, source, migration, exc.reason)
            return source, target, MigrationCheck(False, tuple(reasons))
        refusals = {}
        for host in candidates.names:
            terms = candidates.terms[host]
            migration = _request(guest_locations, self.name, host, self.options, terms)
            answer = _examine(fleet, guest_locations, source, migration)
            self.warning = f"; {candidates.warnings[host]}" if host in candidates.warnings else ""
            if answer.migratable or answer.pinned or not request.allow_others:
                return source, host, answer
            refusals[host] = "; ".join(answer.reasons)
        refusal_text = "; ".join(f"{host}: {reason}" for host, reason in refusals.items())
        return source, candidates.names[0], MigrationCheck(False, (refusal_text,))

    def run(self) -> Result:
        """Migrate the guest. Raises NotFound, InvalidInput, OperationFailed, ConnectionFailed; the
        message says where the guest is."""
        name = names.guest(self.name)
        self.fleet.hosts(self.target)  # rejects an unknown target before any query
        with lock.guest(self.fleet.opts, name, "virt.migrate"):
            try:
                ha_provider.refuse_managed(self.fleet.opts, name)
                self.request = parse_request(self.target, self.options, self.allow_others)
                return self._migrate()
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise

    def _migrate(self) -> Result:
        guest_locations = self._planned_hosts() or locations(self.fleet)
        if self.name in guest_locations.unfinished:
            earlier_source = guest_locations.unfinished[self.name]
            recovery = self._end_earlier(earlier_source, guest_locations)
            guest_locations = locations(self.fleet)
            source = guest_locations.host_of(self.name)
            KeyStore(self.fleet.opts).rebind(self.name, earlier_source, source)
            if recovery.outcome == MOVED and self.target in (None, source):
                return self._report_done(
                    _completed_text(self.name, earlier_source, source),
                    _changes(earlier_source, source),
                )
        self._refuse_stopped(guest_locations)
        source = guest_locations.host_of(self.name)
        if guest_locations.target_leftovers.get(self.name):
            self._clean_targets()
        if source == self.target:
            return self._report_done(f"{self.name} is on {source} already", {})
        if not self.request.allow_others:
            self._refuse_closed(guest_locations)
        target, done = self._move_to_first(guest_locations, source)
        KeyStore(self.fleet.opts).rebind(self.name, source, target)
        done = self._clean_source(source, done)
        comment = _summary(self.name, source, target, done)
        return self._report_done(comment, _changes(source, target), done)

    def _refuse_stopped(self, guest_locations: MigrationLocations) -> None:
        """Raise OperationFailed if the guest was to leave in an evacuation that has been ended."""
        if self.plan is None or self.plan.evacuated is None:
            return
        source, host_facts = self.plan.source, guest_locations.hosts.get(self.plan.source)
        is_open = host_facts is not None and host_facts.maintenance != self.plan.evacuated
        if is_open or lock.is_stopped(self.fleet.opts, source):
            raise errors.OperationFailed(f"the evacuation of {source} was ended")

    def _planned_hosts(self) -> MigrationLocations | None:
        """Return the answers of both hosts of the plan if the guest is active on the source, and no
        leftovers of an earlier migration exist: a guest that is off may be running elsewhere. None:
        all hosts must be asked."""
        if self.plan is None:
            return None
        guest_locations = locations(self.fleet, [self.plan.source, self.plan.targets.names[0]])
        current_hosts = [*guest_locations.guests.get(self.name, {}).items()]
        active = [(self.plan.source, state) for state in facts.ACTIVE]
        earlier = {*guest_locations.unfinished, *guest_locations.target_leftovers}
        is_only_there = len(current_hosts) == 1 and current_hosts[0] in active
        return guest_locations if is_only_there and self.name not in earlier else None

    def _move_to_first(
        self, guest_locations: MigrationLocations, source: str
    ) -> tuple[str, RecoveryResult]:
        """Migrate to the first target that accepts; return (that host, the source's answer)."""
        candidates = self._targets(guest_locations, source)
        refusals = []
        for target in candidates.names:
            with slots.migrating(
                self.fleet.opts, (source, target), self._wait, f"virt.migrate of {self.name}"
            ):
                self.report.step("target", f"{self.name}: moving it from {source} to {target}")
                if target in candidates.warnings:
                    message = f"{self.name}: {candidates.warnings[target]}"
                    self.report.step("warning", message, host=target)
                try:
                    guest_locations = self._refresh(guest_locations, source, target)
                    terms = candidates.terms[target]
                    request = _request(guest_locations, self.name, target, self.options, terms)
                    return target, self._move(source, target, request)
                except errors.Refused as exc:
                    # the source reports the refusal, and its message repeats the guest's name
                    refusal = exc.reason.removeprefix(f"{source}: ")
                    refusal = refusal.removeprefix(f"cannot migrate {self.name} from {source}: ")
                    refusals.append(f"{target}: {refusal}")
                    self.report.step("refused", f"{self.name}: {refusals[-1]}", host=target)
        raise errors.Refused(f"no host took {self.name} from {source}: {'; '.join(refusals)}")

    def _refresh(
        self, guest_locations: MigrationLocations, source: str, target: str
    ) -> MigrationLocations:
        """Return the locations with the target's facts if they are missing, and after a wait with
        the current facts of both hosts. Raises Refused if the target no longer accepts guests,
        OperationFailed as _refuse_stopped does."""
        query_hosts = [source, target] if self._has_waited else [target]
        if self._has_waited or target not in guest_locations.hosts:
            fresh_locations = locations(self.fleet, query_hosts)
            silent = dict(guest_locations.unreachable)
            for host in query_hosts:
                silent.pop(host, None)
            guest_locations = replace(
                guest_locations,
                hosts={**guest_locations.hosts, **fresh_locations.hosts},
                unreachable={**silent, **fresh_locations.unreachable},
            )
        if self._has_waited:
            self._refuse_stopped(guest_locations)
        reason = _closed_reason(guest_locations, target)
        if reason:
            raise errors.Refused(reason)
        return guest_locations

    def _targets(self, guest_locations: MigrationLocations, source: str) -> Targets:
        if self.plan and self.plan.source == source:
            return self.plan.targets
        try:
            return targets(self.fleet, self.policy, self.name, source, self.request, self.provider)
        except errors.Refused as exc:
            if self.request.allow_others:
                raise
            request = _request(guest_locations, self.name, self.target, self.options)
            reasons = _all_reasons(self.fleet, guest_locations, source, request, exc.reason)
            raise errors.Refused("; ".join(reasons)) from exc

    def _report_done(
        self, comment: str, changes: dict[str, Any], done: RecoveryResult | None = None
    ) -> Result:
        self.fleet.fire_event(f"{self.report.tag}/done", {"guest": self.name, "message": comment})
        details = {"migration": done.to_answer()} if done else {}
        return Result(self.name, comment, changes, details)

    def _end_earlier(self, host: str, guest_locations: MigrationLocations) -> RecoveryResult:
        """End a migration that was interrupted earlier."""
        self.report.step(
            "recover", f"{self.name}: ending a migration that was interrupted on {host}"
        )
        return migration_end.end_migration(self.fleet, host, self.name, guest_locations.hosts)

    def _clean_targets(self) -> None:
        """Remove leftovers of earlier attempts, which would obstruct this one."""
        *_, leftovers = target_leftovers.clean_everywhere(self.fleet, self.name)
        for host, reason in leftovers.items():
            self.report.step("left", f"{self.name}: on {host} {reason}", host=host)

    def _clean_source(self, source: str, done: RecoveryResult) -> RecoveryResult:
        """Return the source's answer, after the other hosts were asked about files that the source
        could not delete alone."""
        if not done.retained:
            return done
        try:
            deleted, still_retained = target_leftovers.clean(self.fleet, source, self.name)
        except errors.VirtError:
            return done
        retained = {path: reason for path, reason in done.retained.items() if path not in deleted}
        return replace(
            done, deleted=(*done.deleted, *deleted), retained={**retained, **still_retained}
        )

    def _wait(self, reason: str) -> None:
        self._has_waited = True
        self.report.step("wait", f"{self.name} waits: {reason}")

    def _refuse_closed(self, guest_locations: MigrationLocations) -> None:
        reason = _closed_reason(guest_locations, self.target)
        if reason:
            is_silent = self.target in guest_locations.unreachable
            error_class = errors.ConnectionFailed if is_silent else errors.Refused
            raise error_class(f"cannot migrate {self.name}: {reason}")

    def _move(self, source: str, target: str, request: MigrateRequest) -> RecoveryResult:
        watch = (f"salt/virt/migrate/{self.name}/", self._watch)
        answer = MIGRATE.reply(self.fleet, source, request, timeout_s=SILENT_S, watch=watch)
        if not answer.ok and answer.kind != "failed":
            raise errors.ConnectionFailed(self._lost_text(source, answer))
        done = self._parse_answer(answer, target)
        if done.outcome != MOVED:
            raise errors.OperationFailed(f"{source} answered {done.outcome!r} for {self.name}")
        if isinstance(done, MigrationResult):
            return done
        # an earlier attempt was completed, perhaps to another host
        now = locations(self.fleet).host_of(self.name)
        if now != target:
            text = _completed_text(self.name, source, now)
            raise errors.OperationFailed(f"{text}, not on {target}")
        return done

    def _parse_answer(self, answer: HostAnswer[MigrationResult], target: str) -> RecoveryResult:
        """Return the source's answer. If it failed, raises its error, with why the target could not
        be cleaned. If a host refuses, it has created nothing on the target, unless its own libvirt
        refused after disks were created: the source then reports that they stay."""
        try:
            return answer.get().outcome_only
        except errors.Refused as exc:
            if not target_leftovers.are_named(exc.reason, self.name):
                raise
            note = target_leftovers.after_failure(self.fleet, target, self.name)
            raise errors.Refused(f"{exc.reason}; {note}" if note else exc.reason) from exc
        except errors.OperationFailed as exc:
            note = target_leftovers.after_failure(self.fleet, target, self.name)
            raise errors.OperationFailed(f"{exc}; {note}" if note else exc.text) from exc

    def _watch(self, _tag: str, event: dict[str, Any]) -> None:
        text = event.get("text")
        if text:
            self.report.show(f"{self.name}: {text}")
        elif event.get("percent") is not None:
            self.report.progress(event["percent"], f"{self.name}: {_progress(event)}")

    def _lost_text(self, source: str, answer: HostAnswer[MigrationResult]) -> str:
        """Return where the guest is now, after the source stopped answering."""
        guest_locations = locations(self.fleet)
        places = guest_locations.guests.get(self.name, {})
        # if the hosts completed the migration, nothing ends it later: rebind the key now
        has_ended = source in guest_locations.hosts and self.name not in guest_locations.unfinished
        if has_ended and len(places) == 1:
            KeyStore(self.fleet.opts).rebind(self.name, source, next(iter(places)))
        location_text = ", ".join(f"{state} on {host}" for host, state in sorted(places.items()))
        return (
            f"{source}: {answer.error}; {self.name} is "
            f"{location_text or 'on no host that answers'}; call virt.migrate again to end it"
        )


def _completed_text(name: str, source: str, target: str) -> str:
    return f"{name}: its earlier migration from {source} was completed: it is on {target}"


def _changes(source: str, target: str) -> dict[str, dict[str, str]]:
    return {"host": {"old": source, "new": target}}


def _progress(event: dict[str, Any]) -> str:
    parts = [f"{event['percent']} %"]
    if event.get("speed"):
        parts.append(f"{event['speed'] / 2**20:.0f} MiB/s")
    if event.get("dirty_rate"):
        parts.append(f"{event['dirty_rate'] / 2**20:.0f} MiB/s changing")
    parts.append(f"{event['elapsed_s']:.0f} s")
    return ", ".join(parts)


def _summary(name: str, source: str, target: str, done: RecoveryResult) -> str:
    text = f"{name} was moved from {source} to {target}"
    if isinstance(done, MigrationResult):  # not when only an earlier attempt had to be ended
        text += f" over {done.transport}"
        text += f" in {done.time_ms / 1000:.1f} s" if done.time_ms is not None else ""
        text += f"; downtime {done.downtime_ms} ms" if done.downtime_ms is not None else ""
    notes = [f"{path} was left on {source}: {reason}" for path, reason in done.retained.items()]
    notes += [
        f"checkpoint {checkpoint} does not exist on {target}: {reason}"
        for checkpoint, reason in (done.checkpoints_lost or {}).items()
    ]
    return "; ".join([text, *notes])


def mover(
    opts: dict[str, Any],
    policy: PlacementPolicy,
    allow_others: bool = False,
    plans: Plans | None = None,
) -> moves.Migrate:
    """Return the function that operations.moves calls for each guest, in separate threads.

    opts: the master's configuration. allow_others: choose another host if the target refuses; the
    function returns the host that accepted. plans: filled by the caller of the moves.
    """

    def move(guest: str, target: str) -> str:
        with Fleet(opts) as fleet:
            report = Report(fleet, guest, "migrate")
            plan = plans.get(guest) if plans else None
            done = Migrate(
                fleet, policy, guest, target, report, allow_others=allow_others, plan=plan
            ).run()
        new: str = done.changes.get("host", {}).get("new", target)
        return new

    return move
