"""A set of guests as it shall be: who is missing is made, who is there is left as it is.

What was deployed has the deployment's name in its record, in the domain's metadata: so that
nothing else is ever taken for a guest that is no longer listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import errors, names, plain, units
from saltvirt.fleet import target
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.progress import Screen
from saltvirt.operations import keepers, lock, promised, unended, unique
from saltvirt.operations.init import Init, InitRequest, refuse_kept
from saltvirt.operations.operation import Checked, Operation, Reasons, Result, failure
from saltvirt.operations.picture import Picture, kind_of
from saltvirt.operations.purge import Purge
from saltvirt.operations.report import OneByOne, Report
from saltvirt.operations.together import Turn, each
from saltvirt.placement import facts
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.spec import guest, values
from saltvirt.spec.base import mapping, unknown

DEPLOYMENT = "deployment"
# what is seen to of a guest that is there on that host: what was done, or with True would be; None
# for nothing
Also = Callable[[Fleet, str, str, bool], "Result | None"]
_FOR_US = (
    *("host", "groups", "group_policy", "labels", "prefer", "size", "memory"),
    *("wait", "wait_for", "timeout", "pillar", "name_is_free", "ha"),
)
_DEFAULTS = {"seed": True, "install": True, "disk": "default", "nic": "default"}


@dataclass
class DeployPlan:
    """placed: guest to the host that makes it. again: guest to the host where it is half made, by
    an init that died: that goes first. started: guest to the host where such a one had only its
    start left. there: guest to the host that has it. differs: guest to a list of sentences. ha:
    guest to how it is to be kept from now on, of those that are there. kept: of these guest to what
    changed. warnings: guest to what is only said of where it is placed. unlisted: guest to its
    host. failed: guest to why."""

    placed: dict[str, str] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)
    there: dict[str, str] = field(default_factory=dict)
    differs: dict[str, list[str]] = field(default_factory=dict)
    ha: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Result] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)
    unlisted: dict[str, str] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def changes(self) -> dict[str, dict[str, Any]]:
        """``{guest: {"old": host, "new": host}}``, and ``ha``: what changed of how it is kept."""
        new: dict[str, dict[str, Any]] = {
            name: {"old": self.again.get(name), "new": host} for name, host in self.placed.items()
        }
        new |= {name: {"old": host, "new": host} for name, host in self.started.items()}
        new |= {name: {"old": host, "new": None} for name, host in self.removed.items()}
        for name, done in self.kept.items():
            new[name] = {**new.get(name, {}), **done.changes}
        return new

    def more(self) -> dict[str, dict[str, Any]]:
        """What else is in the answer."""
        return {
            "there": self.there, "differs": self.differs, "unlisted": self.unlisted,
            "failed": self.failed,
        }  # fmt: skip

    def text(self, test: bool = False) -> str:
        """One line for people."""
        would = "would be " if test else ""
        parts = [
            _line(f"{would}deployed", self.placed),
            _line(f"{_HALF} {would}removed before", self.again),
            _line(f"{_WHOLE} {would}ended", self.started),
            _line(f"{would}removed", self.removed),
            f"{len(self.there)} there" if self.there else "",
            _line("not listed", self.unlisted),
            *(done.comment for _, done in sorted(self.kept.items())),
            *(f"{name}: {why}" for name, why in sorted(self.warnings.items())),
            *(f"{name} stays as it is: {', '.join(d)}" for name, d in sorted(self.differs.items())),
            *(f"{name} failed: {why}" for name, why in sorted(self.failed.items())),
        ]
        return "; ".join(filter(None, parts)) or "nothing is listed"


_HALF = "partially created by an interrupted init, and"
_WHOLE = "created by an interrupted init, which"


def _line(word: str, guests: dict[str, str]) -> str:
    listed = ", ".join(f"{name} on {host}" for name, host in sorted(guests.items()))
    return f"{word}: {listed}" if listed else ""


def wanted(name: str, definition: dict[str, Any], deployment: str = "default") -> InitRequest:
    """The InitRequest of a guest as pillar describes it. Raises InvalidInput."""
    label = f"guest {name}"
    known = sorted({*guest.arguments(), *_FOR_US})
    for word in mapping(definition, label):
        if word not in known:
            raise unknown(word, known, label)
    given = {**_DEFAULTS, **{k: v for k, v in definition.items() if v is not None}}
    if "size" in given:
        given["disks"] = _sized(label, given)
    own = mapping(given.pop("metadata", {}), f"{label}: metadata")
    marks = {**own, DEPLOYMENT: str(deployment)}
    memory = given.pop("memory", None)
    waits = "minion" if values.boolean(given.pop("wait", False), f"{label}: wait") else None
    return InitRequest(
        name=names.guest(name),
        cpu=given.pop("cpu", 1),
        mem=given.pop("mem", memory),
        image=given.pop("image", None),
        hypervisor=given.pop("hypervisor", "kvm"),
        host=given.pop("host", None),
        start=values.boolean(given.pop("start", True), f"{label}: start"),
        groups=given.pop("groups", ()),
        group_policy=given.pop("group_policy", "spread"),
        labels=given.pop("labels", {}),
        prefer=given.pop("prefer", {}),
        wait_for=given.pop("wait_for", waits),
        wait_s=units.parse_number(given.pop("timeout", 300), f"{label}: timeout"),
        pillar=given.pop("pillar", None),
        name_is_free=values.boolean(given.pop("name_is_free", False), f"{label}: name_is_free"),
        ha=given.pop("ha", None),
        arguments={**given, "metadata": marks},
    )


def _sized(label: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """The disks with the size of the first one, which the default profile calls ``system``."""
    size = given.pop("size")
    if given.get("disks") or "default" not in (given["disk"], given.get("disk_profile")):
        raise errors.InvalidInput(
            f"{label}: size is for the default disk profile; give disks, a list of name and size"
        )
    return [{"name": "system", "size": size}]


def plan(
    fleet: Fleet,
    policy: PlacementPolicy,
    guests: Sequence[InitRequest],
    deployment: str = "default",
    picture: Picture | None = None,
    keeper: keepers.Keeper | None = None,
) -> DeployPlan:
    """What would be done for these InitRequests, the biggest first; each is simulated, so that the
    next one sees it. Changes nothing. picture: that has then what was placed. keeper: as Init has
    it."""
    picture, found = picture or Picture(fleet, policy, keeper=keeper), DeployPlan()
    there: dict[str, dict[str, facts.Guest]] = {}
    for host in picture.hosts:
        for one in host.guests:
            there.setdefault(one.name, {})[host.name] = one
            if one.deployment == str(deployment):
                found.unlisted[one.name] = host.name
    requests = [(wanted, wanted.request()) for wanted in guests]
    # of those of one size the alike ones follow each other: less is looked at anew
    for wanted, request in sorted(
        requests,
        key=lambda pair: (-pair[1].memory_kib, kind_of(pair[0]), pair[1].groups, pair[1].name),
    ):
        name = wanted.name
        found.unlisted.pop(name, None)
        if name in there:
            _keep(found, wanted, request, there[name])
            try:
                _wish(found, wanted, keeper)
                _not_ended(fleet, found, wanted, there[name], deployment)
            except errors.VirtError as exc:
                found.differs.setdefault(name, []).append(exc.text)
            continue
        try:
            target.refuse_host(fleet.opts, name)
            refuse_kept(fleet, keeper, name)
            unique.refuse_case(name, there)
            unique.refuse_alike(name, (one for one in found.placed if one != name))
            wish = keepers.wish(keeper, wanted.ha, bool(wanted.start))
            unique.check(
                fleet, name, picture.unreachable, seeded=wanted.seeded,
                sure=wanted.name_is_free, files=picture.files,
            )  # fmt: skip
            decision = picture.place(fleet, wanted, request, wish=wish)
            if not decision.ranked:
                raise errors.Refused(f"no host can take it: {decision.reasons()}")
            found.placed[name] = decision.ranked[0].host
            if decision.warning:
                found.warnings[name] = decision.warning
        except errors.VirtError as exc:
            found.failed[name] = exc.text
    return found


def _keep(
    found: DeployPlan,
    wanted: InitRequest,
    request: facts.PlacementRequest,
    places: dict[str, facts.Guest],
) -> None:
    if len(places) > 1:
        found.failed[wanted.name] = f"it is on more than one host: {', '.join(places)}"
        return
    ((host, guest),) = places.items()
    found.there[wanted.name] = host
    differs = [f"{what} {has}, not {want}" for what, has, want in _compare(wanted, request, guest)]
    if wanted.host and wanted.host != host:
        differs.append(f"host {host}, not {plain.line(wanted.host)}")
    if differs:
        found.differs[wanted.name] = differs


def _wish(found: DeployPlan, wanted: InitRequest, keeper: keepers.Keeper | None) -> None:
    """How one that is there is to be kept. One whose wish is wrong has failed."""
    try:
        wish = keepers.wish(keeper, wanted.ha, bool(wanted.start))
    except errors.VirtError as exc:
        found.failed[wanted.name] = exc.text
        return
    if wish is not None:
        found.ha[wanted.name] = wish


def _not_ended(
    fleet: Fleet,
    found: DeployPlan,
    wanted: InitRequest,
    places: dict[str, facts.Guest],
    deployment: str,
) -> None:
    """What made it may have died before it was whole, or started."""
    if len(places) != 1 or keepers.who(fleet.opts, wanted.name):
        return
    ((host, guest),) = places.items()
    what, words = unended.judge(fleet, wanted, guest, host, deployment)
    if words:
        found.differs.setdefault(wanted.name, []).append(words)
    if what == unended.AGAIN:
        found.again[wanted.name], found.placed[wanted.name] = host, wanted.host or host
    if what == unended.START:
        found.started[wanted.name] = host
    if what:
        del found.there[wanted.name]
        found.differs.pop(wanted.name, None)
    if what == unended.AGAIN:  # its init gives it
        found.ha.pop(wanted.name, None)


def _compare(
    wanted: InitRequest, request: facts.PlacementRequest, guest: facts.Guest
) -> Iterator[tuple[str, object, object]]:
    """(what, has, wanted) of a guest that is there."""
    if guest.vcpus != request.vcpus:
        yield "cpu", guest.vcpus, request.vcpus
    if guest.memory_kib != request.memory_kib:
        has, want = guest.memory_kib * 1024, request.memory_kib * 1024
        yield "memory", units.human_bytes(has), units.human_bytes(want)
    if set(guest.groups) != set(request.groups):
        yield "groups", " ".join(guest.groups) or "none", " ".join(request.groups) or "none"
    if wanted.start and guest.state != "running":
        yield "state", guest.state, "running"


def _done(keeping: Operation, test: bool) -> Result | None:
    """What was done, or would be; None for nothing. Raises OperationFailed with every reason."""
    if not test:
        done = keeping.run()
        return done if isinstance(done, Result) and done.changes else None
    checked = keeping.check()
    if not isinstance(checked, Checked) or checked.nothing:
        return None
    if checked.reasons:
        raise errors.OperationFailed("; ".join(checked.reasons))
    return checked


class Deploy:
    """Makes what a DeployPlan places, some guests at once. One that fails does not stop the others.

    guests: of all guests of the deployment. remove: also purges its guests that are not listed any
    more. at_once: so many are made at a time. screen: where steps are shown. keeper: as Init has
    it; how a guest is to be kept is seen to of those that are there, too. also: what else is. A
    host that refuses meanwhile is passed over for another, unless the guest must be on it.
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
        screen: Screen | None = None,
        keeper: keepers.Keeper | None = None,
        also: Also | None = None,
    ) -> None:
        self.keeper, self.also = keeper, also
        self.fleet, self.policy, self.wishes = fleet, policy, guests
        self.deployment, self.at_once = deployment, at_once
        self.remove, self.screen = remove, screen

    def check(self) -> Checked:
        """Where each guest would be made, and why others would not."""
        reasons = Reasons()
        with reasons, self._alone():
            picture = Picture(self.fleet, self.policy, keeper=self.keeper)
            found = self._plan(picture)
            if self.remove:
                self.mark_unlisted(found)
            self._refuse(found, picture)
            self._keep_all(found, test=True)
            self._see_to(found, test=True)
            failed = tuple(f"{name}: {why}" for name, why in sorted(found.failed.items()))
            return Checked(
                self.deployment, found.text(test=True), found.changes(), found.more(),
                reasons=failed, nothing=not found.changes(),
            )  # fmt: skip
        return reasons.checked(self.deployment)

    def run(self) -> Result:
        """Raises InvalidInput for a guest that is described wrongly, and for no guests at all that
        are to be removed."""
        promising = promised.of(self.fleet.opts, self.keeper)
        with self._alone(), promising as promises:
            picture = Picture(self.fleet, self.policy, keeper=self.keeper, promises=promises)
            found = self._plan(picture)
            if self.remove:
                self.mark_unlisted(found)
                self.purge(found)
            self._carry_out(found, picture)
            self._keep_all(found, test=False)
            self._see_to(found, test=False)
        complete = not found.failed
        return Result(self.deployment, found.text(), found.changes(), found.more(), complete)

    def _plan(self, picture: Picture) -> DeployPlan:
        one = self.fleet, self.policy, self.wishes, self.deployment
        return plan(*one, picture, self.keeper)

    def _see_to(self, found: DeployPlan, test: bool) -> None:
        """What else is wanted of those that are there."""
        also = self.also
        if also is None:
            return
        for name, host in sorted(found.there.items()):
            if name in found.failed:
                continue
            try:
                done = also(self.fleet, name, host, test)
            except errors.VirtError as exc:
                found.failed[name] = exc.text
                continue
            if done is not None:
                before = found.kept.get(name)
                if before:
                    words = f"{before.comment}; {done.comment}"
                    done = replace(done, comment=words, changes={**before.changes, **done.changes})
                found.kept[name] = done

    def _keep_all(self, found: DeployPlan, test: bool) -> None:
        """Those that are there are kept as they are to be."""
        for name, wish in sorted(found.ha.items()):
            if self.keeper is None or name in found.failed:
                continue
            try:
                keeping = self.keeper.keeping(self.fleet, name, wish)
                done = _done(keeping, test) if keeping else None
            except errors.VirtError as exc:
                found.failed[name] = exc.text
                continue
            if done is None:
                continue
            found.kept[name] = done
            if not done.complete:
                found.failed[name] = done.comment

    def _alone(self) -> AbstractContextManager[None]:
        return lock.deployment(self.fleet.opts, self.deployment)

    def _refuse(self, found: DeployPlan, picture: Picture) -> None:
        """Those that are placed and whose init would be refused all the same have failed."""
        for wanted in self.wishes:
            if wanted.name not in found.placed:
                continue
            reasons, report = Reasons(), Report(self.fleet, wanted.name, "init")
            init = Init(self.fleet, self.policy, wanted, report, picture, keeper=self.keeper)
            with reasons:
                init.request(reasons)
                if init.wish and wanted.name not in found.again:
                    init.check_ties(found.placed[wanted.name], reasons)
            with reasons:
                if wanted.name not in found.again:  # its key goes with what is half made
                    init.check_key(wanted.name)
            with reasons:
                init.check_secrets([found.placed[wanted.name]])
            if reasons.words:
                del found.placed[wanted.name]
                found.again.pop(wanted.name, None)
                found.failed[wanted.name] = "; ".join(reasons.words)
            elif init.wish:
                words = f"{wanted.name} would be given to high availability"
                given = {"ha": {"old": None, "new": wanted.ha}}
                found.kept[wanted.name] = Checked(wanted.name, words, given)

    def _carry_out(self, found: DeployPlan, picture: Picture) -> None:
        todo = [
            wanted for wanted in self.wishes if wanted.name in {**found.placed, **found.started}
        ]
        hosts = len(picture.hosts) + len(picture.unreachable)

        def make(wanted: InitRequest, turn: Turn) -> str:
            return self._make(wanted, found, picture, turn)

        for wanted, done in each(todo, make, self.at_once, hosts):
            name = wanted.name
            into = found.placed if name in found.placed else found.started
            try:
                into[name] = done.result()
            except Exception as exc:
                del into[name]
                found.again.pop(name, None)
                found.failed[name] = failure(exc, f"the deployment of {name}")

    def _make(self, wanted: InitRequest, found: DeployPlan, picture: Picture, turn: Turn) -> str:
        """The host that has made one of them, or started it."""
        with Fleet(self.fleet.opts, like=self.fleet) as fleet:
            report = Report(fleet, wanted.name, "init", OneByOne(self.screen))
            if wanted.name in found.started:
                host = found.started[wanted.name]
                unended.start(fleet, self.policy, wanted, host, report, turn.look)
                return host
            if wanted.name in found.again:
                self._remove_half(fleet, wanted, found, picture)
            init = Init(fleet, self.policy, wanted, report, picture, turn.look, keeper=self.keeper)
            done = init.run()
            if init.kept:
                found.kept[wanted.name] = init.kept
            made: str = done.more["host"]
            return made

    def _remove_half(
        self, fleet: Fleet, wanted: InitRequest, found: DeployPlan, picture: Picture
    ) -> None:
        """What is half made goes; the guest is placed anew, on that host if it can be."""
        host = found.again[wanted.name]
        unended.remove(fleet, wanted.name, host)
        picture.look_again(fleet, host, without=wanted.name)
        there = replace(wanted, host=found.placed[wanted.name])
        wish = keepers.wish(self.keeper, wanted.ha, bool(wanted.start))
        picture.place(fleet, there, there.request(), wish=wish)

    def mark_unlisted(self, found: DeployPlan) -> None:
        """What is not listed is to be removed.

        Raises InvalidInput for an empty list: a pillar that failed to render must remove nothing.
        """
        if not self.wishes:
            raise errors.InvalidInput(
                f"deployment {self.deployment}: the list of guests is empty; nothing is removed, "
                "so that no mistake removes them all: salt-run virt.purge removes a guest"
            )
        for name, host in found.unlisted.items():
            try:
                keepers.refuse(self.fleet.opts, name)
                found.removed[name] = host
            except errors.VirtError as exc:
                found.failed[name] = exc.text
        found.unlisted = {name: h for name, h in found.unlisted.items() if name in found.failed}

    def purge(self, found: DeployPlan) -> None:
        """Purges the guests that a DeployPlan removes."""
        keys = KeyStore(self.fleet.opts)
        for name, host in list(found.removed.items()):
            try:
                # the names are the hosts' own: none of them makes another one's guest or key go
                known = bool(keys.host_of(name))
                deployment = str(self.deployment)
                Purge(self.fleet, name, known, host, deployment, force=True).run()
            except Exception as exc:
                del found.removed[name]
                found.failed[name] = failure(exc, f"the removal of {name}")
