"""Deploy a set of guests: create those that are missing, and leave existing ones unchanged.

A deployed guest has the name of its deployment in the metadata of its domain, so that no other
guest is mistaken for one that is no longer listed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import errors, names, sanitize, units
from saltvirt.fleet import target
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.progress import ProgressDisplay
from saltvirt.operations.cluster import capacity_claims, find, ha_provider, unique
from saltvirt.operations.cluster.hooks import GuestSettings
from saltvirt.operations.core.operation import Checked, Operation, Reasons, Result, failure
from saltvirt.operations.core.report import OneByOne, Report
from saltvirt.operations.create import interrupted_create
from saltvirt.operations.create.batch_lookup import create_each
from saltvirt.operations.create.cluster_snapshot import ClusterSnapshot, kind_of
from saltvirt.operations.create.init import Init, refuse_managed
from saltvirt.operations.create.request import PLACEMENT_WORDS, InitRequest
from saltvirt.operations.guest.purge import Purge
from saltvirt.operations.journal import deployment_record, lock, times
from saltvirt.operations.journal.deployment_record import DeploymentRecord, ListedGuest
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.spec import deploy, guest, values
from saltvirt.spec.base import mapping, unknown

DEPLOYMENT = "deployment"
_DEFAULTS = {"seed": True, "install": True, "disk": "default", "nic": "default"}


@dataclass
class DeployPlan:
    """placed: guest to the host that creates it. recreate: guest to the host with its partial
    creation, which is removed first. pending_start: guest to the host where an interrupted init
    only has to start it. existing: guest to the host that has it. differences: guest to a list of
    sentences. ha: HA options of existing guests. ha_results: guest to what these options changed.
    warnings: guest to a warning about its placement. unlisted: guest to its host. failed: guest to
    the reason."""

    placed: dict[str, str] = field(default_factory=dict)
    recreate: dict[str, str] = field(default_factory=dict)
    pending_start: dict[str, str] = field(default_factory=dict)
    existing: dict[str, str] = field(default_factory=dict)
    differences: dict[str, list[str]] = field(default_factory=dict)
    ha: dict[str, Any] = field(default_factory=dict)
    ha_results: dict[str, Result] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)
    unlisted: dict[str, str] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def changes(self) -> dict[str, dict[str, Any]]:
        """Return ``{guest: {"old": host, "new": host}}``, with ``ha`` for changed HA options."""
        new: dict[str, dict[str, Any]] = {
            name: {"old": self.recreate.get(name), "new": host}
            for name, host in self.placed.items()
        }
        new |= {name: {"old": host, "new": host} for name, host in self.pending_start.items()}
        new |= {name: {"old": host, "new": None} for name, host in self.removed.items()}
        for name, done in self.ha_results.items():
            new[name] = {**new.get(name, {}), **done.changes}
        return new

    def details(self) -> dict[str, dict[str, Any]]:
        """Return the further keys of the answer."""
        return {
            "existing": self.existing, "differs": self.differences, "unlisted": self.unlisted,
            "failed": self.failed,
        }  # fmt: skip

    def text(self, test: bool = False) -> str:
        """Return a summary in one line."""
        would = "would be " if test else ""
        parts = [
            _line(f"{would}deployed", self.placed),
            _line(f"{_PARTIAL} {would}removed before", self.recreate),
            _line(f"{_COMPLETE} {would}ended", self.pending_start),
            _line(f"{would}removed", self.removed),
            f"existing: {len(self.existing)}" if self.existing else "",
            _line("not listed", self.unlisted),
            *(done.comment for _, done in sorted(self.ha_results.items())),
            *(f"{name}: {reason}" for name, reason in sorted(self.warnings.items())),
            *(
                f"{name} stays as it is: {', '.join(d)}"
                for name, d in sorted(self.differences.items())
            ),
            *(f"{name} failed: {reason}" for name, reason in sorted(self.failed.items())),
        ]
        return "; ".join(filter(None, parts)) or "the list is empty"


_PARTIAL = "partially created by an interrupted init, and"
_COMPLETE = "created by an interrupted init, which"


def _line(word: str, guests: dict[str, str]) -> str:
    listed = ", ".join(f"{name} on {host}" for name, host in sorted(guests.items()))
    return f"{word}: {listed}" if listed else ""


def parse_guest(name: str, definition: dict[str, Any], deployment: str = "default") -> InitRequest:
    """Return the InitRequest for a guest's definition in pillar. Raises InvalidInput."""
    label = f"guest {name}"
    allowed_keys = sorted({*guest.arguments(), *PLACEMENT_WORDS, "size", "memory"})
    for word in mapping(definition, label):
        if word not in allowed_keys:
            raise unknown(word, allowed_keys, label)
    options = {**_DEFAULTS, **{k: v for k, v in definition.items() if v is not None}}
    if "size" in options:
        options["disks"] = deploy.system_disk(options, label)
    metadata = mapping(options.pop("metadata", {}), f"{label}: metadata")
    marks = {**metadata, DEPLOYMENT: str(deployment)}
    memory = options.pop("memory", None)
    waits = "minion" if values.boolean(options.pop("wait", False), f"{label}: wait") else None
    return InitRequest(
        name=names.guest(name),
        cpu=options.pop("cpu", 1),
        mem=options.pop("mem", memory),
        image=options.pop("image", None),
        hypervisor=options.pop("hypervisor", "kvm"),
        host=options.pop("host", None),
        start=values.boolean(options.pop("start", True), f"{label}: start"),
        groups=options.pop("groups", ()),
        group_policy=options.pop("group_policy", "spread"),
        labels=options.pop("labels", {}),
        prefer=options.pop("prefer", {}),
        wait_for=options.pop("wait_for", waits),
        wait_s=units.parse_number(options.pop("timeout", 300), f"{label}: timeout"),
        pillar=options.pop("pillar", None),
        name_is_free=values.boolean(options.pop("name_is_free", False), f"{label}: name_is_free"),
        ha=options.pop("ha", None),
        arguments={**options, "metadata": marks},
    )


def plan(
    fleet: Fleet,
    policy: PlacementPolicy,
    guests: Sequence[InitRequest],
    deployment: str = "default",
    cluster: ClusterSnapshot | None = None,
    provider: ha_provider.HaProvider | None = None,
) -> DeployPlan:
    """Plan the deployment of these InitRequests, the largest first; each is placed as if the
    previous ones existed. Changes nothing. cluster: counts the placed guests. provider: as for
    Init."""
    cluster = cluster or ClusterSnapshot(fleet, policy, provider=provider)
    deploy_plan = DeployPlan()
    existing: dict[str, dict[str, facts.Guest]] = {}
    for host in cluster.hosts:
        for item in host.guests:
            existing.setdefault(item.name, {})[host.name] = item
            if item.deployment == str(deployment):
                deploy_plan.unlisted[item.name] = host.name
    requests = [(init_request, init_request.request()) for init_request in guests]
    # guests of the same kind follow each other, which saves queries
    for init_request, request in sorted(
        requests,
        key=lambda pair: (-pair[1].memory_kib, kind_of(pair[0]), pair[1].groups, pair[1].name),
    ):
        name = init_request.name
        deploy_plan.unlisted.pop(name, None)
        if name in existing:
            _record_existing(deploy_plan, init_request, request, existing[name])
            try:
                _record_ha_options(deploy_plan, init_request, provider)
                _check_interrupted(fleet, deploy_plan, init_request, existing[name], deployment)
            except errors.VirtError as exc:
                deploy_plan.differences.setdefault(name, []).append(exc.text)
            continue
        try:
            target.refuse_host(fleet.opts, name)
            refuse_managed(fleet, provider, name)
            unique.refuse_case(name, existing)
            unique.refuse_alike(name, (item for item in deploy_plan.placed if item != name))
            ha_options = init_request.ha_options(provider)
            unique.check(
                fleet, name, cluster.unreachable, seeded=init_request.seeded,
                name_is_free=init_request.name_is_free, names_on_disk=cluster.names_on_disk,
            )  # fmt: skip
            decision = cluster.place_guest(fleet, init_request, request, ha_options=ha_options)
            if not decision.ranked:
                raise errors.Refused(f"no host can take it: {decision.reasons()}")
            deploy_plan.placed[name] = decision.ranked[0].host
            if decision.warning:
                deploy_plan.warnings[name] = decision.warning
        except errors.VirtError as exc:
            deploy_plan.failed[name] = exc.text
    return deploy_plan


def _record_existing(
    deploy_plan: DeployPlan,
    init_request: InitRequest,
    request: facts.PlacementRequest,
    guests_by_host: dict[str, facts.Guest],
) -> None:
    if len(guests_by_host) > 1:
        deploy_plan.failed[init_request.name] = (
            f"it is on more than one host: {', '.join(guests_by_host)}"
        )
        return
    ((host, guest),) = guests_by_host.items()
    deploy_plan.existing[init_request.name] = host
    differences = [
        f"{attribute} {current}, not {expected}"
        for attribute, current, expected in _compare(init_request, request, guest)
    ]
    if init_request.host and init_request.host != host:
        differences.append(f"host {host}, not {sanitize.one_line(init_request.host)}")
    if differences:
        deploy_plan.differences[init_request.name] = differences


def _record_ha_options(
    deploy_plan: DeployPlan, init_request: InitRequest, provider: ha_provider.HaProvider | None
) -> None:
    """Record the HA options of an existing guest; invalid options are a failure of the guest."""
    try:
        ha_options = init_request.ha_options(provider)
    except errors.VirtError as exc:
        deploy_plan.failed[init_request.name] = exc.text
        return
    if ha_options is not None:
        deploy_plan.ha[init_request.name] = ha_options


def _check_interrupted(
    fleet: Fleet,
    deploy_plan: DeployPlan,
    init_request: InitRequest,
    guests_by_host: dict[str, facts.Guest],
    deployment: str,
) -> None:
    """Plan how to complete a guest whose creation was interrupted before it was complete, or
    started."""
    if len(guests_by_host) != 1 or ha_provider.manager_of(fleet.opts, init_request.name):
        return
    ((host, guest),), name = guests_by_host.items(), init_request.name
    action, message = interrupted_create.judge(fleet, init_request, guest, host, deployment)
    if message:
        deploy_plan.differences.setdefault(name, []).append(message)
    if action is None:
        return
    del deploy_plan.existing[name]
    deploy_plan.differences.pop(name, None)
    if action == interrupted_create.START:
        deploy_plan.pending_start[name] = host
    else:
        deploy_plan.recreate[name] = host
        deploy_plan.placed[name] = init_request.host or host
        deploy_plan.ha.pop(name, None)  # its init applies them


def _compare(
    init_request: InitRequest, request: facts.PlacementRequest, guest: facts.Guest
) -> Iterator[tuple[str, object, object]]:
    """Yield (attribute, current value, expected value) for the differences of an existing guest."""
    if guest.vcpus != request.vcpus:
        yield "cpu", guest.vcpus, request.vcpus
    if guest.memory_kib != request.memory_kib:
        current, expected = guest.memory_kib * 1024, request.memory_kib * 1024
        yield "memory", units.human_bytes(current), units.human_bytes(expected)
    if set(guest.groups) != set(request.groups):
        yield "groups", " ".join(guest.groups) or "none", " ".join(request.groups) or "none"
    if init_request.start and guest.state != "running":
        yield "state", guest.state, "running"


def _apply_operation(operation: Operation, test: bool) -> Result | None:
    """Return what was changed, or would be; None if nothing. Raises OperationFailed with every
    reason."""
    if not test:
        done = operation.run()
        return done if isinstance(done, Result) and done.changes else None
    checked = operation.check()
    if not isinstance(checked, Checked) or checked.nothing:
        return None
    if checked.reasons:
        raise errors.OperationFailed("; ".join(checked.reasons))
    return checked


def _listed(init_request: InitRequest) -> ListedGuest:
    """Return a guest as its deployment's record has it."""
    request, image, size_bytes = init_request.request(), init_request.image, 0
    disks = init_request.arguments.get("disks")
    for entry in disks if isinstance(disks, list) else []:
        with contextlib.suppress(errors.InvalidInput):  # its host reports it
            if isinstance(entry, dict) and entry.get("size") is not None:
                size_bytes += values.size_bytes(entry["size"], "size")
    shown = None if image is None else sanitize.one_line(sanitize.address(str(image)))
    return ListedGuest(request.vcpus, request.memory_kib, shown, size_bytes or None)


def _with_result(record: DeploymentRecord, failed: Mapping[str, str]) -> DeploymentRecord:
    """Return the record of a call that has ended. failed: guest to the reason."""
    guests = {name: replace(guest, error=failed.get(name)) for name, guest in record.guests.items()}
    unlisted = {name: reason for name, reason in failed.items() if name not in guests}
    return replace(record, guests=guests, result=not failed, errors=unlisted)


class Deploy:
    """Create the guests that a DeployPlan places, several at a time. If one fails, the others
    continue.

    guests: all guests of the deployment. remove: also purge its guests that are no longer listed.
    at_once: how many are created at a time. screen: shows the steps. provider: as for Init; HA
    options also apply to existing guests. settings: of features, for existing guests. user: who
    deploys. If a host refuses a guest, the guest is placed on another host, unless it requires that
    host.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        guests: Sequence[InitRequest],
        deployment: str = "default",
        *,
        remove: bool = False,
        at_once: int = 4,
        screen: ProgressDisplay | None = None,
        provider: ha_provider.HaProvider | None = None,
        settings: Sequence[GuestSettings] = (),
        user: str = "master",
    ) -> None:
        self.provider, self.settings, self.user = provider, settings, user
        self.fleet, self.policy, self.init_requests = fleet, policy, guests
        self.deployment, self.at_once = deployment, at_once
        self.remove, self.screen = remove, OneByOne(screen)

    def check(self) -> Checked:
        """Return where each guest would be created, and why others would not."""
        reasons = Reasons()
        with reasons, lock.deployment(self.fleet.opts, self.deployment):
            cluster = ClusterSnapshot(self.fleet, self.policy, provider=self.provider)
            deploy_plan = self._plan(cluster)
            if self.remove:
                self.mark_unlisted(deploy_plan)
            self._check_placed(deploy_plan, cluster)
            self._apply_ha(deploy_plan, test=True)
            self._apply_settings(deploy_plan, test=True)
            failed = [f"{name}: {text}" for name, text in sorted(deploy_plan.failed.items())]
            comment, changes = deploy_plan.text(test=True), deploy_plan.changes()
            answer = self.deployment, comment, changes, deploy_plan.details()
            return Checked(*answer, reasons=tuple(failed), nothing=not changes)
        return reasons.checked(self.deployment)

    def run(self) -> Result:
        """Deploy the guests. Raises InvalidInput for an invalid definition, and if all guests would
        be removed because the list is empty."""
        claiming = capacity_claims.open_claims(self.fleet.opts, self.provider)
        with lock.deployment(self.fleet.opts, self.deployment), claiming as claims:
            cluster = ClusterSnapshot(self.fleet, self.policy, None, self.provider, claims)
            deploy_plan = self._plan(cluster)
            if self.remove:
                self.mark_unlisted(deploy_plan)
            record = self._record()
            deployment_record.store(self.fleet.opts, record)
            if self.remove:
                self.purge(deploy_plan)
            self._carry_out(deploy_plan, cluster)
            self._apply_ha(deploy_plan, test=False)
            self._apply_settings(deploy_plan, test=False)
            deployment_record.store(self.fleet.opts, _with_result(record, deploy_plan.failed))
        answer = self.deployment, deploy_plan.text(), deploy_plan.changes(), deploy_plan.details()
        return Result(*answer, complete=not deploy_plan.failed)

    def _record(self) -> DeploymentRecord:
        """Return the record of this call, which has not ended."""
        guests = {request.name: _listed(request) for request in self.init_requests}
        now = times.recorded()
        return DeploymentRecord(self.deployment, now, self.user, self.remove, guests)

    def _plan(self, cluster: ClusterSnapshot) -> DeployPlan:
        arguments = self.fleet, self.policy, self.init_requests, self.deployment
        return plan(*arguments, cluster, self.provider)

    def _apply_settings(self, deploy_plan: DeployPlan, test: bool) -> None:
        """Apply the settings of features to existing guests."""
        existing = sorted(deploy_plan.existing.items())
        for (name, host), settings in itertools.product(existing, self.settings):
            if name in deploy_plan.failed:
                continue
            try:
                done = settings.apply(self.fleet, name, host, test)
            except errors.VirtError as exc:
                deploy_plan.failed[name] = exc.text
                continue
            before = deploy_plan.ha_results.get(name)
            if before and done:
                message, changes = f"{before.comment}; {done.comment}", before.changes
                done = replace(done, comment=message, changes={**changes, **done.changes})
            if done:
                deploy_plan.ha_results[name] = done

    def _apply_ha(self, deploy_plan: DeployPlan, test: bool) -> None:
        """Apply the HA options of existing guests."""
        for name, ha_options in sorted(deploy_plan.ha.items()):
            if self.provider is None or name in deploy_plan.failed:
                continue
            try:
                operation = self.provider.plan_change(self.fleet, name, ha_options)
                done = _apply_operation(operation, test) if operation else None
            except errors.VirtError as exc:
                deploy_plan.failed[name] = exc.text
                continue
            if done is None:
                continue
            deploy_plan.ha_results[name] = done
            if not done.complete:
                deploy_plan.failed[name] = done.comment

    def _check_placed(self, deploy_plan: DeployPlan, cluster: ClusterSnapshot) -> None:
        """Mark placed guests as failed if Init would refuse them."""
        for init_request in self.init_requests:
            name = init_request.name
            if name not in deploy_plan.placed:
                continue
            reasons, host = Reasons(), deploy_plan.placed[name]
            report = Report(self.fleet, name, "init")
            init = self._init(self.fleet, init_request, report, cluster)
            is_new = name not in deploy_plan.recreate
            with reasons:
                init.request(reasons)
                if init.ha_options and is_new:
                    init.check_resources(host, reasons)
            with reasons:
                if is_new:  # the key of a partial creation is removed with it
                    init.check_key(name)
            with reasons:
                init.check_secrets([host])
            if reasons.texts:
                del deploy_plan.placed[name]
                deploy_plan.recreate.pop(name, None)
                deploy_plan.failed[name] = "; ".join(reasons.texts)
            elif init.ha_options:
                message = f"{name} would be added to high availability"
                changes = {"ha": {"old": None, "new": init_request.ha}}
                deploy_plan.ha_results[name] = Checked(name, message, changes)

    def _init(
        self,
        fleet: Fleet,
        init_request: InitRequest,
        report: Report,
        cluster: ClusterSnapshot,
        query_locations: unique.LocationQuery = find.locations,
    ) -> Init:
        arguments = fleet, self.policy, init_request, report, cluster, query_locations
        return Init(*arguments, provider=self.provider)

    def _carry_out(self, deploy_plan: DeployPlan, cluster: ClusterSnapshot) -> None:
        names = {*deploy_plan.placed, *deploy_plan.pending_start}
        pending = [item for item in self.init_requests if item.name in names]
        hosts = len(cluster.hosts) + len(cluster.unreachable)

        def make(init_request: InitRequest, query_locations: unique.LocationQuery) -> str:
            return self._make(init_request, deploy_plan, cluster, query_locations)

        for init_request, done in create_each(pending, make, self.at_once, hosts):
            name = init_request.name
            into = deploy_plan.placed if name in deploy_plan.placed else deploy_plan.pending_start
            try:
                into[name] = done.result()
            except Exception as exc:
                del into[name]
                deploy_plan.recreate.pop(name, None)
                deploy_plan.failed[name] = failure(exc, f"the deployment of {name}")

    def _make(
        self,
        init_request: InitRequest,
        deploy_plan: DeployPlan,
        cluster: ClusterSnapshot,
        query_locations: unique.LocationQuery,
    ) -> str:
        """Create or start one guest, and return its host."""
        with Fleet(self.fleet.opts, like=self.fleet) as fleet:
            name = init_request.name
            report = Report(fleet, name, "init", self.screen)
            if name in deploy_plan.pending_start:
                host = deploy_plan.pending_start[name]
                arguments = fleet, self.policy, init_request, host, report, query_locations
                interrupted_create.start(*arguments)
                return host
            if name in deploy_plan.recreate:
                self._remove_partial(fleet, init_request, deploy_plan, cluster)
            init = self._init(fleet, init_request, report, cluster, query_locations)
            done = init.run()
            if init.ha_result:
                deploy_plan.ha_results[name] = init.ha_result
            return str(done.details["host"])

    def _remove_partial(
        self,
        fleet: Fleet,
        init_request: InitRequest,
        deploy_plan: DeployPlan,
        cluster: ClusterSnapshot,
    ) -> None:
        """Remove the partial creation, and place the guest again, if possible on the same host."""
        host = deploy_plan.recreate[init_request.name]
        interrupted_create.remove(fleet, init_request.name, host)
        cluster.refresh_host(fleet, host, guest_name=init_request.name)
        placed_request = replace(init_request, host=deploy_plan.placed[init_request.name])
        ha_options = init_request.ha_options(self.provider)
        cluster.place_guest(fleet, placed_request, placed_request.request(), ha_options=ha_options)

    def mark_unlisted(self, deploy_plan: DeployPlan) -> None:
        """Plan to remove the guests that are no longer listed.

        Raises InvalidInput if the list is empty: a pillar that failed to render must not remove any
        guest.
        """
        if not self.init_requests:
            raise errors.InvalidInput(
                f"deployment {self.deployment}: the list of guests is empty; nothing is removed, "
                "because that would remove all of them: salt-run virt.purge removes a guest"
            )
        for name, host in deploy_plan.unlisted.items():
            try:
                ha_provider.refuse_managed(self.fleet.opts, name)
                deploy_plan.removed[name] = host
            except errors.VirtError as exc:
                deploy_plan.failed[name] = exc.text
        for name in deploy_plan.removed:
            del deploy_plan.unlisted[name]

    def purge(self, deploy_plan: DeployPlan) -> None:
        """Purge the guests that a DeployPlan removes."""
        keys = KeyStore(self.fleet.opts)
        for name, host in list(deploy_plan.removed.items()):
            try:
                # the hosts report these names: none may delete the guest or the key of another host
                delete_key = bool(keys.host_of(name))
                deployment = str(self.deployment)
                Purge(self.fleet, name, delete_key, host, deployment, force=True).run()
            except Exception as exc:
                del deploy_plan.removed[name]
                deploy_plan.failed[name] = failure(exc, f"the removal of {name}")
