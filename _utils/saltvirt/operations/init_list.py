"""Deploy several guests that are alike: all are placed in one picture of the hosts, and some are
made at once. One that fails does not stop the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from saltvirt import errors
from saltvirt.fleet import secret
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.progress import Screen
from saltvirt.operations import keepers, lock, promised, unique
from saltvirt.operations.init import Init, InitRequest, check_name, nowhere, planned
from saltvirt.operations.joint import ALONE, Jobs, Joint
from saltvirt.operations.operation import Reasons, Result, Several, failure
from saltvirt.operations.picture import Picture
from saltvirt.operations.report import OneByOne, Report
from saltvirt.operations.together import Turn, each
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.spec import one as of_one

# of guests that share jobs so many are under way; their turns are the jobs'
THREADS = 60


class InitList:
    """Deploys guests that differ in their names alone, each as Init does.

    wishes: an InitRequest of each. at_once: so many are made at a time. screen: where steps are
    shown. keeper: as Init has it. A host that refuses meanwhile is asked for what it has, it alone,
    and passed over. Guests that get no key, and so are made in moments, share the jobs of
    their hosts.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        wishes: Sequence[InitRequest],
        at_once: int,
        screen: Screen | None = None,
        keeper: keepers.Keeper | None = None,
    ) -> None:
        self.keeper = keeper
        self.fleet, self.policy, self.wishes = fleet, policy, wishes
        self.at_once, self.screen = at_once, screen
        self.joint = Joint(at_once) if _are_light(wishes[0]) else None
        self.jobs: Jobs = ALONE if self.joint is None else self.joint

    def check(self) -> Several:
        """Where each would be made, or why not. Their hosts are not asked whether they could."""
        picture = self._picture()
        hosts = picture.hosts
        return Several(tuple(self._checked(wanted, picture, hosts) for wanted in self.wishes))

    def run(self) -> Several:
        """Raises InvalidInput for what is wrong of all of them, before anything is made."""
        with promised.of(self.fleet.opts, self.keeper) as promises:
            return self._all_made(self._picture(promises))

    def _all_made(self, picture: Picture) -> Several:
        hosts, placed = picture.hosts, []
        parts: dict[str, Result] = {}
        for wanted in self.wishes:
            try:
                self._place(wanted, picture, hosts, Reasons())
                placed.append(wanted)
            except errors.VirtError as exc:
                parts[wanted.name] = _failed(wanted, exc)

        if self.joint:
            self.joint.coming = Counter(filter(None, (picture.host_of(w.name) for w in placed)))

        def make(wanted: InitRequest, turn: Turn) -> Result:
            return self._make(wanted, picture, turn)

        known = len(hosts) + len(picture.unreachable)
        turns = THREADS if self.joint else self.at_once
        for wanted, done in each(placed, make, turns, known):
            try:
                parts[wanted.name] = done.result()
            except Exception as exc:
                parts[wanted.name] = _failed(wanted, exc)
        return Several(tuple(parts[wanted.name] for wanted in self.wishes))

    def _picture(self, promises: promised.Promises | None = None) -> Picture:
        """The hosts. Raises InvalidInput for what cannot be of all of them."""
        first = self.wishes[0]
        own = of_one.guests_own(first.arguments)
        if own:
            raise errors.InvalidInput(
                f"{', '.join(own)}: one guest alone can have that, and these are "
                f"{len(self.wishes)}: name one, or describe each for virt.deployed"
            )
        for number, wanted in enumerate(self.wishes):
            unique.refuse_alike(wanted.name, (one.name for one in self.wishes[:number]))
        for question in first.questions():
            question()
        keepers.wish(self.keeper, first.ha, bool(first.start))
        self.fleet.hosts(first.host)
        return Picture(self.fleet, self.policy, first, self.keeper, promises)

    def _checked(self, wanted: InitRequest, picture: Picture, hosts: list[facts.Host]) -> Result:
        reasons = Reasons()
        with reasons:
            with reasons:
                lock.refuse_taken(self.fleet.opts, wanted.name)
            request, chosen = self._place(wanted, picture, hosts, reasons)
            init = self._init(wanted, picture)
            with reasons:
                init.check_secrets([chosen])
            with reasons:
                init.wish = keepers.wish(self.keeper, wanted.ha, bool(wanted.start))
                init.check_ties(chosen, reasons)
            init.warning = picture.warning_of(wanted.name)
            reasons.hold()
            best = next(host for host in picture.hosts if host.name == chosen)
            return planned(request.at(best), chosen, {}, init.words("would be"))
        return reasons.checked(wanted.name)

    def _place(
        self, wanted: InitRequest, picture: Picture, hosts: list[facts.Host], reasons: Reasons
    ) -> tuple[facts.PlacementRequest, str]:
        """(what it asks for, the host that it is placed on in the picture). hosts: as they were
        before any was placed. Raises the first reason why there is none."""
        init = self._init(wanted, picture)
        request = init.request(reasons)
        with reasons:
            check_name(self.fleet, wanted, hosts, picture.unreachable, picture.files)
            init.check_key(request.name)
        reasons.hold()  # who cannot be made takes no other's place
        decision = picture.place(self.fleet, wanted, request, wish=init.wish)
        if not decision.ranked:
            raise nowhere(request.name, decision)
        return request, decision.ranked[0].host

    def _init(self, wanted: InitRequest, picture: Picture) -> Init:
        report = self._report(self.fleet, wanted)
        return Init(self.fleet, self.policy, wanted, report, picture, keeper=self.keeper)

    def _make(self, wanted: InitRequest, picture: Picture, turn: Turn) -> Result:
        with Fleet(self.fleet.opts, like=self.fleet) as fleet:
            report = self._report(fleet, wanted)
            return Init(
                fleet, self.policy, wanted, report, picture, turn.look, self.jobs, self.keeper
            ).run()

    def _report(self, fleet: Fleet, wanted: InitRequest) -> Report:
        return Report(fleet, wanted.name, "init", OneByOne(self.screen))


def _are_light(wanted: InitRequest) -> bool:
    """Nothing of it is anybody's alone: no key that comes in while it is made, no secret."""
    return not wanted.seeded and not secret.split(wanted.for_host())[1]


def _failed(wanted: InitRequest, error: Exception) -> Result:
    words = failure(error, f"the deployment of {wanted.name}")
    return Result(wanted.name, words, complete=False)
