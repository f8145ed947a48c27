"""Deploy several guests with the same settings: all are placed with one query of the hosts, and
several are created at a time. If one fails, the others continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from saltvirt import errors
from saltvirt.fleet import secret
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.progress import ProgressDisplay
from saltvirt.operations.cluster import capacity_claims, find, ha_provider, unique
from saltvirt.operations.core.operation import Reasons, Result, Several, failure
from saltvirt.operations.core.report import OneByOne, Report
from saltvirt.operations.create.batch_lookup import create_each
from saltvirt.operations.create.batched_jobs import SINGLE_JOBS, BatchedJobs, Jobs
from saltvirt.operations.create.cluster_snapshot import ClusterSnapshot
from saltvirt.operations.create.init import Init, check_name, no_host_error, planned
from saltvirt.operations.create.request import InitRequest
from saltvirt.operations.journal import lock
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.spec import single_guest as of_one

# maximum threads of guests that share jobs; the slots of the jobs limit the hosts' load
THREADS = 60


class InitList:
    """Deploys guests that differ only by name, each with Init.

    init_requests: one for each guest. at_once: how many are created at a time. screen: shows the
    steps. provider: as for Init. If a host refuses a guest, that host is queried again, and the
    guest is placed on another one. Guests without a key are created quickly and share the jobs of
    their hosts.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        init_requests: Sequence[InitRequest],
        at_once: int,
        screen: ProgressDisplay | None = None,
        provider: ha_provider.HaProvider | None = None,
    ) -> None:
        self.provider = provider
        self.fleet, self.policy, self.init_requests = fleet, policy, init_requests
        self.at_once, self.screen = at_once, OneByOne(screen)
        self.batched_jobs = BatchedJobs(at_once) if _are_light(init_requests[0]) else None
        self.jobs: Jobs = SINGLE_JOBS if self.batched_jobs is None else self.batched_jobs

    def check(self) -> Several:
        """Return where each guest would be created, or why not. The hosts are not asked for a
        test."""
        cluster = self._query_cluster()
        hosts = cluster.hosts
        return Several(
            tuple(self._check_guest(item, cluster, hosts) for item in self.init_requests)
        )

    def run(self) -> Several:
        """Deploy the guests. Raises InvalidInput for an error that concerns all guests, before any
        is created."""
        with capacity_claims.open_claims(self.fleet.opts, self.provider) as claims:
            return self._create_all(self._query_cluster(claims))

    def _create_all(self, cluster: ClusterSnapshot) -> Several:
        hosts, placed = cluster.hosts, []
        parts: dict[str, Result] = {}
        for init_request in self.init_requests:
            try:
                self._place_guest(init_request, cluster, hosts, Reasons())
                placed.append(init_request)
            except errors.VirtError as exc:
                parts[init_request.name] = _failed(init_request, exc)

        if self.batched_jobs:
            guest_hosts = (cluster.host_of(init_request.name) for init_request in placed)
            self.batched_jobs.coming = Counter(filter(None, guest_hosts))

        def make(init_request: InitRequest, query_locations: unique.LocationQuery) -> Result:
            return self._make(init_request, cluster, query_locations)

        host_count = len(hosts) + len(cluster.unreachable)
        slot_count = THREADS if self.batched_jobs else self.at_once
        for init_request, done in create_each(placed, make, slot_count, host_count):
            try:
                parts[init_request.name] = done.result()
            except Exception as exc:
                parts[init_request.name] = _failed(init_request, exc)
        return Several(tuple(parts[init_request.name] for init_request in self.init_requests))

    def _query_cluster(self, claims: capacity_claims.Claims | None = None) -> ClusterSnapshot:
        """Query the hosts. Raises InvalidInput for arguments that several guests cannot share."""
        first = self.init_requests[0]
        unique_args = of_one.unique_arguments(first.arguments)
        if unique_args:
            raise errors.InvalidInput(
                f"{', '.join(unique_args)}: only a single guest can have that, and these are "
                f"{len(self.init_requests)}: deploy one, or define each for virt.deployed"
            )
        names = [init_request.name for init_request in self.init_requests]
        for number, name in enumerate(names):
            unique.refuse_alike(name, names[:number])
        for validator in first.validators():
            validator()
        first.check_image(self.fleet.opts)
        first.ha_options(self.provider)
        self.fleet.hosts(first.host)
        return ClusterSnapshot(self.fleet, self.policy, first, self.provider, claims)

    def _check_guest(
        self, init_request: InitRequest, cluster: ClusterSnapshot, hosts: list[facts.Host]
    ) -> Result:
        reasons = Reasons()
        with reasons:
            with reasons:
                lock.refuse_taken(self.fleet.opts, init_request.name)
            request, chosen = self._place_guest(init_request, cluster, hosts, reasons)
            init = self._init(init_request, cluster)
            with reasons:
                init.check_secrets([chosen])
            with reasons:
                init.ha_options = init_request.ha_options(self.provider)
                init.check_resources(chosen, reasons)
            init.warning = cluster.warning_of(init_request.name)
            reasons.raise_first()
            best = next(host for host in cluster.hosts if host.name == chosen)
            return planned(request.for_host(best), chosen, {}, init.notes("would be"))
        return reasons.checked(init_request.name)

    def _place_guest(
        self,
        init_request: InitRequest,
        cluster: ClusterSnapshot,
        hosts: list[facts.Host],
        reasons: Reasons,
    ) -> tuple[facts.PlacementRequest, str]:
        """Return (placement request, host of the guest). hosts: the inventories before any guest
        was placed. Raises the first reason if there is no host."""
        init = self._init(init_request, cluster)
        request = init.request(reasons)
        with reasons:
            check_name(self.fleet, init_request, hosts, cluster.unreachable, cluster.names_on_disk)
            init.check_key(request.name)
        reasons.raise_first()  # who cannot be made takes no other's place
        decision = cluster.place_guest(
            self.fleet, init_request, request, ha_options=init.ha_options
        )
        if not decision.ranked:
            raise no_host_error(request.name, decision)
        return request, decision.ranked[0].host

    def _init(
        self,
        init_request: InitRequest,
        cluster: ClusterSnapshot,
        fleet: Fleet | None = None,
        query_locations: unique.LocationQuery = find.locations,
    ) -> Init:
        """Return the Init of a guest. fleet: of its thread."""
        fleet = fleet or self.fleet
        report = Report(fleet, init_request.name, "init", self.screen)
        arguments = fleet, self.policy, init_request, report, cluster, query_locations
        return Init(*arguments, self.jobs, self.provider)

    def _make(
        self,
        init_request: InitRequest,
        cluster: ClusterSnapshot,
        query_locations: unique.LocationQuery,
    ) -> Result:
        with Fleet(self.fleet.opts, like=self.fleet) as fleet:
            return self._init(init_request, cluster, fleet, query_locations).run()


def _are_light(init_request: InitRequest) -> bool:
    """Return whether the guest can share a job: it has no key that arrives meanwhile, and no
    secret."""
    return not init_request.seeded and not secret.split(init_request.host_request())[1]


def _failed(init_request: InitRequest, error: Exception) -> Result:
    message = failure(error, f"the deployment of {init_request.name}")
    return Result(init_request.name, message, complete=False)
