"""Deploy a guest: place it, create it on a host, accept its key, start it, confirm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, settings, units
from saltvirt.answers.calls import HostAnswer
from saltvirt.answers.created import CreatedGuest, GuestKey
from saltvirt.answers.guest_calls import EJECT_SEED, LIST_STATES, EjectRequest, GuestsRequest
from saltvirt.answers.guests import Leftovers
from saltvirt.fleet import authorization, pillars, secret, target
from saltvirt.fleet.answer import BAD, DOWN, LOST, SILENT
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.access import owners
from saltvirt.operations.cluster import (
    capacity_claims,
    find,
    ha_provider,
    unique,
)
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.core.report import Report
from saltvirt.operations.create import explain, wait
from saltvirt.operations.create.batched_jobs import SINGLE_JOBS, Jobs
from saltvirt.operations.create.cluster_snapshot import ClusterSnapshot, kind_of
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.guest import purge
from saltvirt.operations.guest.lifecycle import RUNNING, VERBS
from saltvirt.operations.journal import location_cache, lock, slots
from saltvirt.operations.journal.intent_log import PendingCreate
from saltvirt.placement import account, choose, facts
from saltvirt.placement.calls import CHECK_CREATE, CREATE, POWER, CreateRequest, PowerRequest
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.revert import UndoStack


@dataclass(frozen=True)
class Placed:
    """A created guest: its host, its state in libvirt, and the host's answer."""

    host: str
    state: str
    created: GuestKey


class Init:
    """Deploys a guest. If a step fails, all previous ones are undone. However, a guest that was
    started and did not answer in time stays, so that you can inspect it.

    cluster: has the guest's placement, as one of many, with its name found free; None: all hosts
    are queried for this guest. query_locations: as for unique.resolve. jobs: how the host is asked.
    provider: manages guests and the failover reserve, if configured.
    """

    # the hosts, from decide() on if the guest is not one of many
    cluster: ClusterSnapshot

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        init_request: InitRequest,
        report: Report,
        cluster: ClusterSnapshot | None = None,
        query_locations: unique.LocationQuery = find.locations,
        jobs: Jobs = SINGLE_JOBS,
        provider: ha_provider.HaProvider | None = None,
    ) -> None:
        self.batch_cluster, self.query_locations, self.jobs = cluster, query_locations, jobs
        if cluster:
            self.cluster = cluster
        self.provider = provider
        self.ha_options: Any = None
        self.claims: capacity_claims.Claims | None = None
        self.warning = ""
        self.ha_result: Result | None = None
        self.fleet = fleet
        self.policy = policy
        self.init_request = init_request
        self.report = report
        self.keys = KeyStore(fleet.opts)
        self.slot = slots.Slots()
        self.unreachable: dict[str, str] = {}

    def check(self) -> Checked:
        """Return where the guest would be created, and what it would take."""
        reasons = Reasons()
        with reasons:
            request = self.request(reasons)
            with reasons:
                lock.refuse_taken(self.fleet.opts, request.name)
            decision, hosts = self.decide(request, reasons)
            best = next(host for host in hosts if host.name == decision.ranked[0].host)
            if request.name not in {guest.name for guest in best.guests}:
                with reasons:
                    if self.ha_options:  # it asks the same
                        self.check_resources(best.name, reasons)
                    else:
                        self.test_create(best.name)
            reasons.raise_first()
            table = {"table": explain.table(decision, {}), "columns": explain.COLUMNS}
            return planned(request.for_host(best), best.name, table, self.notes("would be"))
        return reasons.checked(self.init_request.name)

    def run(self) -> Result:
        """Deploy the guest. Raises InvalidInput, AlreadyExists, Refused, KeyRefused,
        OperationFailed."""
        reasons = Reasons(first=True)
        request = self.request(reasons)
        with lock.guest(self.fleet.opts, request.name, "virt.init"), self.claiming():
            try:
                with self.deploying() as self.slot:
                    decision, _ = self.decide(request, reasons)
                    for host, reason in sorted(self.unreachable.items()):
                        self.report_unreachable(host, reason)
                    placed = self.make(request, decision)
                    location_cache.store(self.fleet.opts, request.name, placed.host)
                if self.init_request.wait_for and self.init_request.start:
                    self.wait(placed.host, self.init_request.wait_for)
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise
        comment = f"{request.name} is {placed.state} on {placed.host}{self.notes('is')}"
        details = {"host": placed.host, "state": placed.state}
        ha_changes = self.ha_result.changes if self.ha_result else {}
        changes = {"created": placed.created.to_answer(), **ha_changes}
        return Result(request.name, comment, changes, details)

    @contextlib.contextmanager
    def claiming(self) -> Iterator[None]:
        """Keep the guest's claims for the block, and withdraw them if it fails."""
        claims: contextlib.AbstractContextManager[capacity_claims.Claims | None]
        claims = capacity_claims.open_claims(self.fleet.opts, self.provider)
        if self.batch_cluster:
            claims = contextlib.nullcontext(self.batch_cluster.claims)
        with claims as self.claims:
            try:
                yield
            except BaseException:
                if self.claims:
                    self.claims.withdraw(self.init_request.name)
                raise

    def notes(self, verb: str) -> str:
        """Return the notes about HA and warnings for the comment."""
        ha_note = f"; {self.ha_result.comment}" if self.ha_result else ""
        if self.ha_options and not ha_note:
            ha_note = f"; it {verb} added to high availability"
        return f"{ha_note}; {self.warning}" if self.warning else ha_note

    def make(self, request: facts.PlacementRequest, decision: choose.PlacementDecision) -> Placed:
        """Create the guest on one of the hosts of the Decision."""
        owners.forget_unrecorded(self.fleet.opts, request.name)  # of an earlier guest
        undo = UndoStack()
        intent_args = self.fleet.opts, request.name, "virt.init", undo, self.init_request.operation
        with naming_leftovers(undo), PendingCreate(*intent_args) as pending_create, undo:
            placed = self.create(decision, undo, pending_create)
            undo.success()
        return placed

    def deploying(self) -> contextlib.AbstractContextManager[slots.Slots]:
        """Hold a slot for deployments."""
        purpose = f"virt.init of {self.init_request.name}"
        return self.jobs.deploying(self.fleet.opts, self.report_queued, purpose)

    def report_queued(self, reason: str) -> None:
        """Report that the guest waits for others."""
        self.report.step("queued", f"{self.init_request.name}: waiting: {reason}")

    def report_unreachable(self, host: str, reason: str) -> None:
        """Report that a host is not a candidate because it did not answer."""
        text = f"{self.init_request.name}: without {host}: {reason}"
        self.report.step("unreachable", text, host=host)

    def request(self, reasons: Reasons) -> facts.PlacementRequest:
        """Return the placement request, after all checks that need no host."""
        with reasons:
            if self.init_request.wait_for:
                wait.check(self.init_request.wait_for)
        with reasons:
            self.check_pillar()
        for validator in self.init_request.validators():
            with reasons:
                validator()
        if not self.batch_cluster:  # InitList checks the image of its guests once
            with reasons:
                self.init_request.check_image(self.fleet.opts)
        with reasons:
            self.ha_options = self.init_request.ha_options(self.provider)
        with reasons:
            request = self.init_request.request()
            target.refuse_host(self.fleet.opts, request.name)
            refuse_managed(self.fleet, self.provider, request.name)
        reasons.raise_first()
        return request

    def check_pillar(self) -> None:
        """Check the pillar: it is bound to the guest's key, so the guest needs one."""
        if self.init_request.pillar:
            pillars.check(self.fleet.opts, self.init_request.pillar)
            if not self.init_request.seeded:
                raise errors.InvalidInput("pillar: the guest has a minion's key only with seed")

    def decide(
        self, request: facts.PlacementRequest, reasons: Reasons
    ) -> tuple[choose.PlacementDecision, list[facts.Host]]:
        """Return (Decision, inventories before the guest was placed). A guest of a batch keeps the
        host that was planned, unless that no longer answers."""
        if self.batch_cluster:
            return self._placed_decision(request, reasons), []
        self.fleet.hosts(self.init_request.host)  # refuses an unknown host
        self.cluster = ClusterSnapshot(
            self.fleet, self.policy, self.init_request, self.provider, self.claims
        )
        hosts = self.cluster.hosts
        with reasons:
            check_name(self.fleet, self.init_request, hosts, self.cluster.unreachable)
            self.check_key(request.name)
        self.unreachable = self.cluster.take_unreported()
        decision = self._choose_host(request, reasons)
        with reasons:
            self.check_secrets(candidate.host for candidate in decision.ranked[: self.attempts()])
        if not decision.ranked:
            reasons.raise_first()
        return decision, hosts

    def _placed_decision(
        self, request: facts.PlacementRequest, reasons: Reasons
    ) -> choose.PlacementDecision:
        """Return the planned host, or a new placement if that host no longer answers."""
        self.unreachable = self.cluster.take_unreported()
        with reasons:
            self.check_key(request.name)
        host = self.cluster.host_of(request.name)
        if host:
            self.warning = self.cluster.warning_of(request.name)
            return choose.PlacementDecision((choose.Candidate(host, 0.0),), {})
        return self._choose_host(request, reasons)

    def _choose_host(
        self, request: facts.PlacementRequest, reasons: Reasons
    ) -> choose.PlacementDecision:
        """Place the guest."""
        decision = self.cluster.place_guest(
            self.fleet, self.init_request, request, ha_options=self.ha_options
        )
        with reasons:
            if not decision.ranked:
                raise no_host_error(request.name, decision)
        self.warning = decision.warning
        return decision

    def candidates(self, decision: choose.PlacementDecision) -> Iterator[str]:
        """Yield the hosts that are asked to create the guest; each one after the first if the
        previous one refused."""
        refused: list[str] = []
        while decision.ranked:
            refused.append(decision.ranked[0].host)
            yield refused[-1]
            self.cluster.withdraw(self.fleet, refused[-1], self.init_request.name)
            request = self.init_request.request()
            decision = self.cluster.place_guest(
                self.fleet, self.init_request, request, excluded=refused, ha_options=self.ha_options
            )
            self.warning = decision.warning

    def _host_request(self, host: str) -> CreateRequest:
        """Return the request to create the guest on the host."""
        return replace(self.init_request.host_request(), placement=self.cluster.terms(host))

    def test_create(self, host: str) -> None:
        """Ask the host whether it could create the guest, including a check of the image. Secrets
        are left out: only the creation needs them. Raises the host's error."""
        request = replace(secret.without(self._host_request(host)), test=True)
        CHECK_CREATE.ask(self.fleet, host, request)

    def check_resources(self, host: str, reasons: Reasons) -> None:
        """Check that a guest for HA uses nothing that prevents its start on other hosts."""
        if not (self.provider and self.ha_options):
            return
        cluster, key = self.cluster, (kind_of(self.init_request), host)
        resources = cluster.local_resources.get(key)
        if resources is None:
            arguments = cluster.responding_host(host), self._host_request(host)
            resources = cluster.local_resources[key] = self.provider.local_resources(
                self.fleet, self.init_request.name, *arguments
            )
        name = self.init_request.name
        for reason in resources:
            with reasons:
                raise errors.InvalidInput(f"{name} could only run on {host}: {reason}")

    def check_secrets(self, hosts: Iterable[str]) -> None:
        """Check that secrets only go to hosts that the master's configuration names."""
        arguments = [
            *secret.split(self.init_request.host_request())[1],
            *(["pillar"] if self.init_request.pillar else []),
        ]
        for host in hosts:
            secret.refuse_claimed(self.fleet.opts, host, arguments)

    def check_key(self, name: str) -> None:
        """Check that the master has no accepted key of this name: as the name is free, the key
        would belong to another machine."""
        if self.init_request.seeded:
            unique.refuse_key(self.keys, name)

    def create(
        self, decision: choose.PlacementDecision, undo: UndoStack, pending_create: PendingCreate
    ) -> Placed:
        """Create the guest on the first host of the ranking that accepts it.

        A host can lack the capacity that it had when it was queried, because another request was
        faster: then the next host is asked, without a limit. Each other failure counts against
        ``attempts``. If a host refuses to start a guest that it has created, the guest is removed
        before the next host is asked.
        """
        refusals: list[str] = []
        attempts_left = self.attempts()
        for host in self.candidates(decision):
            self.check_secrets([host])
            self.check_resources(host, Reasons(first=True))
            name = self.init_request.name
            if self.warning:
                self.report.step("warning", f"{name}: {self.warning}", host=host)
            self.report.step("placed", f"{name}: creating it on {host}", host=host)
            mark = undo.mark()
            try:
                pending_create.record_host(host)
                return self.create_on(host, undo, pending_create)
            except errors.Refused as exc:
                undo.run(mark)
                if undo.failed:  # on another host the guest would exist a second time
                    raise errors.OperationFailed(exc.reason) from exc
                attempts_left -= not isinstance(exc, errors.NoRoom)
                refusals.append(exc.reason)
                self.report.step("refused", f"{name}: {exc.reason}", host=host)
                if not attempts_left:
                    break
        raise errors.Refused(f"no host took {self.init_request.name}: {refusals_text(refusals)}")

    def wait(self, host: str, kind: str) -> None:
        """Wait for the guest's answer; then its seed volume can be removed."""
        name = self.init_request.name
        self.report.step("waiting", f"{name}: waiting for its {kind}", host=host)
        took_s = wait.wait_for_answer(self.fleet, host, name, kind, self.init_request.wait_s)
        # any minion can answer a ping, so the seed volume is only removed after a verified contact
        if kind == "minion" and target.reported(self.fleet.opts, name):
            EJECT_SEED.ask(self.fleet, host, EjectRequest(name))
        self.report.step("answered", f"{name}: its {kind} answered after {took_s:.0f} s")

    def attempts(self) -> int:
        return settings.integer(settings.of_master(self.fleet.opts), "attempts", 3)

    def create_on(self, host: str, undo: UndoStack, pending_create: PendingCreate) -> Placed:
        name = self.init_request.name
        pillar = self.init_request.pillar
        request, hidden = secret.split(self._host_request(host))
        handing_in = authorization.key_permission(self.fleet, host, name, undo, pillar, hidden)
        with handing_in if self.init_request.seeded or hidden else contextlib.nullcontext():
            created = self.make_on(host, request)
            undo.push(f"purge {name} on {host}", purge.on_host, self.fleet, host, name)
            confirm_key(self.fleet, self.report, host, name, created, pillar)
        unique.resolve(
            self.fleet, self.report, name, host,
            seeded=self.init_request.seeded, name_is_free=self.init_request.name_is_free,
            query_locations=self.query_locations,
        )  # fmt: skip
        pending_create.mark_started()
        start_policy = self.policy if self.init_request.start else None
        arguments = self.fleet, self.report, host, name
        state = deliver(*arguments, start_policy=start_policy, jobs=self.jobs)
        if self.provider and self.ha_options:
            self.enable_ha(self.provider, host, undo)
        return Placed(host, state, created)

    def enable_ha(self, provider: ha_provider.HaProvider, host: str, undo: UndoStack) -> None:
        """Add the guest to HA. This is the last step, so that no other host starts a partial
        guest."""
        name = self.init_request.name
        operation = provider.plan_change(self.fleet, name, self.ha_options, created_on=host)
        if operation:
            undo.push(f"remove {name} from high availability", provider.forget, self.fleet, name)
            done = operation.run()
            self.ha_result = done if isinstance(done, Result) else None
            self.report.step("kept", f"{name}: added to high availability", host=host)

    def make_on(self, host: str, request: CreateRequest) -> GuestKey:
        """Create the guest on the host, and return its answer. By then its key has arrived."""
        name = self.init_request.name
        watch = (f"{self.report.tag}/", self.report.host_event)
        on_stall = (slots.QUIET_S, slots.max_hold_s(self.fleet.opts), self.idle)
        answer = self.jobs.ask(self.fleet, host, CREATE, request, watch, on_stall)
        if answer.kind == DOWN:  # it was told nothing
            raise errors.Refused(f"{host}: {answer.error}")
        if answer.kind in (SILENT, BAD):
            raise errors.ConnectionFailed(
                f"{host}: {answer.error}; it may still be creating {name}: salt-run virt.repair "
                f"name={name} shows what is left of it"
            )
        created = self.resolve_lost(host, answer) if answer.kind == LOST else answer.get()
        self.slot.close()  # what follows is light
        return created

    def idle(self) -> None:
        """Free the slot because the host makes no progress, or works for very long: others need not
        wait."""
        self.slot.close()
        name = self.init_request.name
        text = f"{name}: still being created; guests that wait in the queue go ahead"
        self.report.step("quiet", text)

    def resolve_lost(self, host: str, lost: HostAnswer[CreatedGuest]) -> GuestKey:
        """Ask the host what it has created, if its answer to the ended job was lost.

        Raises Refused if it created nothing, AlreadyExists if its guest belongs to another
        operation, ConnectionFailed if this is unknown.
        """
        name, error_text = self.init_request.name, f"{host}: {lost.error}"
        try:
            leftovers = find.leftovers(self.fleet, host, long=True)
            self.check_creator(host, leftovers)
            is_partial = name in leftovers.unfinished
            if is_partial:
                purge.purge_partial(self.fleet, host, name, disks="made")
        except errors.AlreadyExists as exc:
            raise errors.AlreadyExists(f"{error_text}; {exc.text}") from exc
        except errors.VirtError as exc:
            raise errors.ConnectionFailed(
                f"{error_text}; {host} may have created {name}: salt-run virt.repair name={name} "
                f"shows what is left of it ({exc.text})"
            ) from exc
        if is_partial:
            raise errors.Refused(f"{error_text}; the partially created {name} was removed")
        if name not in leftovers.guests:
            raise errors.Refused(f"{error_text}; nothing was created there")
        key = self.keys.accepted(name)
        if self.init_request.image and self.init_request.seeded and not key:
            raise errors.ConnectionFailed(
                f"{error_text}; {name} exists there and stays as it is, but the master did not "
                f"get its key: salt-run virt.repair name={name} shows what to do"
            )
        self.report.step("found", f"{name}: {lost.error}; it exists there", host=host)
        return GuestKey(name=name, host=host, pub_key=key)

    def check_creator(self, host: str, leftovers: Leftovers) -> None:
        """Raise if a guest of this name on the host was not created by this operation.

        leftovers: the host's answer. Raises AlreadyExists for the guest of another operation, which
        stays.
        """
        name = self.init_request.name
        if name not in leftovers.guests:
            return
        if leftovers.operations.get(name) != self.init_request.operation:
            raise errors.AlreadyExists(
                f"{name} on {host} was created by another operation, and stays as it is"
            )


def check_name(
    fleet: Fleet,
    init_request: InitRequest,
    hosts: Iterable[facts.Host],
    unreachable: dict[str, str],
    names_on_disk: find.NamesOnDisk | None = None,
) -> None:
    """Raise if the name is in use, or may be. hosts, unreachable: from one query of all hosts.
    names_on_disk: of the unreachable hosts, if many names are checked."""
    name = init_request.name
    for host in hosts:
        unique.refuse_case(name, {guest.name: [host.name] for guest in host.guests})
        existing = next((guest for guest in host.guests if guest.name == name), None)
        if existing is not None:
            partial_note = f" (being created, or partially created: see virt.repair name={name})"
            raise errors.AlreadyExists(
                f"{name} already exists, on {host.name}{partial_note * existing.creating}"
            )
    unique.check(
        fleet, name, unreachable, seeded=init_request.seeded,
        name_is_free=init_request.name_is_free, names_on_disk=names_on_disk,
    )  # fmt: skip


def refuse_managed(fleet: Fleet, provider: ha_provider.HaProvider | None, name: str) -> None:
    """Raise if a managed guest has the name: it may exist on no host now, and be started at any
    time."""
    ha_provider.refuse_managed(fleet.opts, name)
    if provider:
        provider.refuse_name(name)


def planned(
    request: facts.PlacementRequest, host: str, details: dict[str, Any], notes: str = ""
) -> Checked:
    """Return the answer to ``test=True``. request: with the values of this host. notes: appended to
    the comment."""
    demand = {
        "host": host, "vcpus": request.vcpus, "memory_mib": request.memory_kib // 1024,
        "disk_bytes": request.disk_bytes, "pools": request.pools,
        "bridges": sorted(request.bridges), "networks": sorted(request.networks),
    }  # fmt: skip
    disk = units.human_bytes(request.disk_bytes + sum(request.pools.values()))
    comment = (
        f"{request.name} would be created on {host}: {units.pluralize(request.vcpus, 'vCPU')}, "
        f"{demand['memory_mib']} MiB of memory, {disk} of disk{notes}"
    )
    return Checked(request.name, comment, {"created": demand}, {"host": host, **details})


@contextlib.contextmanager
def naming_leftovers(undo: UndoStack) -> Iterator[None]:
    """Add what could not be undone to an error within the block."""
    try:
        yield
    except errors.VirtError as exc:
        if not undo.failed:
            raise
        failures = "; ".join(undo.failed)
        raise type(exc)(
            f"{exc.text}; could not undo: {failures}; see salt-run virt.repair"
        ) from exc


def confirm_key(
    fleet: Fleet,
    report: Report,
    host: str,
    name: str,
    created: GuestKey,
    pillar: dict[str, Any] | None = None,
) -> None:
    """Check that the host answers for this guest, and that the key in the answer has arrived.

    created: the host's answer, which is not trusted: the key arrives through the ext_pillar
    virtkey, where Salt verifies the sender. pillar: of the guest's minion. Raises KeyRefused,
    OperationFailed, InvalidInput.
    """
    if created.name != name:
        raise errors.OperationFailed(
            f"{host} was asked for {name} and answered for {created.name!r}"
        )
    handed_key, key = created.pub_key, KeyStore(fleet.opts).accepted(name)
    if handed_key and not (key and handed_key.split() == key.split()):
        raise errors.KeyRefused(
            f"{host}: the master did not get the key of {name} through the ext_pillar virtkey; "
            f"the logs of the master and of {host} say why (an older version there: salt {host} "
            "saltutil.sync_all)"
        )
    if handed_key:
        report.step("accepted", f"{name}: key accepted", host=host)
    elif pillar:
        raise errors.InvalidInput(f"pillar: {name} has no disk with an image, and so no minion")


def deliver(
    fleet: Fleet,
    report: Report,
    host: str,
    name: str,
    *,
    start_policy: PlacementPolicy | None = None,
    jobs: Jobs = SINGLE_JOBS,
) -> str:
    """Start the new guest, and return its state in libvirt.

    start_policy: the placement policy for the start; None: do not start. jobs: how the host is
    asked to start it. Raises OperationFailed, NoRoom.
    """
    if start_policy:
        state = _start_guest(fleet, host, name, start_policy, jobs)
    else:
        state = _state(fleet, host, name)
    if start_policy and state != RUNNING:
        raise errors.OperationFailed(f"{host}: {name} was started, but libvirt reports {state}")
    report.step("done", f"{name}: {state}", host=host, state=state)
    return state


def _start_guest(fleet: Fleet, host: str, name: str, policy: PlacementPolicy, jobs: Jobs) -> str:
    """Start the guest and return its state. If the host's answer is missing, ask the host for the
    state."""
    request = PowerRequest(
        name=name,
        verb="start",
        states=VERBS["start"].before,
        placement=account.terms(None, policy),
    )
    try:
        power = jobs.ask(fleet, host, POWER, request).get()
    except errors.ConnectionFailed:
        if _state(fleet, host, name) != RUNNING:
            raise
        return RUNNING
    if power.before is None:
        raise errors.OperationFailed(f"{host}: {name} no longer exists there")
    return power.after or power.before


def _state(fleet: Fleet, host: str, name: str) -> str:
    return LIST_STATES.ask(fleet, host, GuestsRequest(name), long=True).get(name, "")


def refusals_text(refusals: list[str]) -> str:
    """Join the refusals of the hosts; of many, only the first ones."""
    remaining = len(refusals) - choose.NAMED
    shown = "; ".join(refusals[: choose.NAMED])
    return f"{shown}; and {remaining} more" if remaining > 0 else shown


def no_host_error(name: str, decision: choose.PlacementDecision) -> errors.VirtError:
    """Return the error if no host remains: InvalidInput if all hosts reject the same profile, else
    Refused."""
    reasons = set(decision.rejected.values())
    if len(reasons) == 1 and next(iter(reasons))[0] == "profile":
        return errors.InvalidInput(f"{name}: {next(iter(reasons))[1]}")
    return errors.Refused(f"no host can take {name}: {decision.reasons()}")
