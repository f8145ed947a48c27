"""Move a guest, from the master: find it, choose the target, let its host do it.

Its host confirms the move with both libvirts before it reports it: nobody is asked again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import errors, names
from saltvirt.answers.guests import MigrationFacts
from saltvirt.answers.migration import Migratable, Moved, Recovered, of_migrate
from saltvirt.fleet.answer import Answer
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import (
    ending,
    find,
    hints,
    inventory,
    keepers,
    lock,
    moves,
    reserved,
    slots,
    target_leftovers,
)
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.report import Report
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy

MOVED = "moved"
# the host itself notices a dead peer after 20 s and libvirt after 30: be more patient
SILENT_S = 60


@dataclass(frozen=True)
class MigrationLocations(find.Locations):
    """unfinished: name to the host that has a broken-off migration of it. target_leftovers: name to
    the hosts that have something of an undone one. hosts: id to what the host said of itself."""

    unfinished: dict[str, str] = field(default_factory=dict)
    target_leftovers: dict[str, list[str]] = field(default_factory=dict)
    hosts: dict[str, MigrationFacts] = field(default_factory=dict)


def locations(fleet: Fleet, only: list[str] | None = None) -> MigrationLocations:
    """Where all guests are, and what their hosts say of themselves. only: of these hosts alone."""
    hosts, unreachable = target_leftovers.locations(fleet, only)
    noted: dict[str, list[str]] = {}
    for host, said in hosts.items():
        for name in said.noted:
            noted.setdefault(name, []).append(host)
    for host, said in hosts.items():
        hints.heard(fleet.opts, host, said.guests)
    return MigrationLocations(
        find.by_name({host: said.guests for host, said in hosts.items()}),
        unreachable,
        last_seen=find.seen_on(fleet.opts, unreachable),
        unfinished=_begun_on(hosts),
        target_leftovers=noted,
        hosts=hosts,
    )


def _begun_on(hosts: dict[str, MigrationFacts]) -> dict[str, str]:
    """Name to the host that has a broken-off migration of it: of several the one that has the
    guest, from which it may move just now. The others are ended when that one is."""
    found: dict[str, str] = {}
    for host, said in hosts.items():
        for name in said.unfinished:
            if name not in found or name in said.guests:
                found[name] = host
    return found


def abort(fleet: Fleet, name: str) -> tuple[str, dict[str, str]]:
    """Ends a running migration; (the host that the guest stays on, {host: why something of it is
    still there}).

    While it moves the guest is on two hosts, and only its old one knows of a migration.
    """
    name = names.guest(str(name))
    seen = locations(fleet)
    unfinished = seen.unfinished
    if name not in unfinished:
        silent = f" that answers ({seen.unreachable_text()})" if seen.unreachable else ""
        raise errors.OperationFailed(f"no host{silent} has a migration of {name} under way")
    fleet.one(unfinished[name], "virt.migrate_abort", {"vm_": name}, long=True)
    *_, left = target_leftovers.everywhere(fleet, name)
    return unfinished[name], left


@dataclass(frozen=True)
class Targets:
    """names: of the hosts that may take the guest, best first. terms: host to what goes with the
    request. warnings: host to what is only said of the guest there."""

    names: list[str]
    terms: dict[str, account.PlacementTerms]
    warnings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MovePlan:
    """Where a guest goes from the source, as one of many that were placed in one picture of the
    hosts. evacuated: why the source is in maintenance; once it is not, for this reason, the guest
    stays there. None: the source need not be."""

    source: str
    targets: Targets
    evacuated: str | None = None


# guest to its plan
Plans = dict[str, MovePlan]


def planned(
    cloud: dict[str, facts.Host],
    source: str,
    decision: choose.Decision,
    policy: PlacementPolicy,
    first: str | None = None,
) -> MovePlan:
    """The MovePlan by a Decision over the cloud (name to Host); first: the host that comes first,
    whatever its rank."""
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
    keeper: keepers.Keeper | None = None,
) -> Targets:
    """The Targets for a guest of the source. request: MigrationRequest. keeper: whose room is left
    free, but by who wants overcommit.

    What the guest needs is read from its definition, and what virt.init was asked for is kept with
    it: all of it holds for its next host as it held for its first. Raises Refused with each host's
    reason when none is left.
    """
    keeps = keeper if keeper and keeper.keeps_room and not request.overcommit else None
    few = {source, request.target} if request.target and not request.others else None
    asked = fleet.hosts() if keeps or few is None else few
    hosts, unreachable = inventory.gather(fleet, sorted(asked))
    room = keeps.room(hosts) if keeps else None
    if few is not None:
        hosts = [host for host in hosts if host.name in few]
        unreachable = {host: why for host, why in unreachable.items() if host in few}
    here = next((host for host in hosts if host.name == source), None)
    if here is None:
        raise errors.ConnectionFailed(f"{source}: {unreachable.get(source, 'it did not answer')}")
    guest = next((guest for guest in here.guests if guest.name == name), None)
    if guest is None:
        raise errors.NotFound(f"{name} is no longer on {source}: run the command again")
    needs = facts.of_guest(guest, here)
    # whom the operator names is not one that placement chooses
    policy = replace(policy, exclude=tuple(h for h in policy.exclude if h != request.target))
    others = [host for host in hosts if host.name != source]
    decision = choose.choose(others, needs, policy)
    decision, warnings = reserved.each(decision, room, guest, request.target)
    found = [candidate.host for candidate in decision.ranked]
    there = request.target in found or (request.overcommit and request.target not in unreachable)
    if request.target and there:
        found = [request.target, *(host for host in found if host != request.target)]
    if not found:
        decision.rejected.update((host, ("down", why)) for host, why in unreachable.items())
        reasons = decision.reasons() or "there is no other host"
        raise errors.Refused(f"no host can take {name} from {source}: {reasons}")
    terms = {host.name: account.terms(host, policy) for host in others}
    return Targets(found, terms, warnings)


@dataclass(frozen=True)
class MigrationRequest:
    """Where a guest shall go. target: the host, if one is named. others: where that one refuses,
    another will do. overcommit: there also where it has no room, or is not what the guest was made
    for."""

    target: str | None = None
    others: bool = False
    overcommit: bool = False


def request_of(
    target: str | None, options: dict[str, Any], others: bool = False
) -> MigrationRequest:
    """Where the guest shall go by what the user said. Raises InvalidInput."""
    overcommit = options.get("overcommit", False)
    if not isinstance(overcommit, bool):
        raise errors.InvalidInput(f"overcommit {overcommit!r} is not True or False")
    if overcommit and not target:
        raise errors.InvalidInput("overcommit=True needs the target: name the host")
    return MigrationRequest(target, others or not target, overcommit)


def _next_may_take(request: MigrationRequest, answer: Migratable) -> bool:
    """Whether it is this target that does not take the guest, and another may."""
    return request.others and not answer.standing


def examine(fleet: Fleet, name: str, target: str | None = None) -> Migratable:
    """What ``virt.migratable`` says of the guest, with why the target takes none. Without a
    target of the guest alone."""
    seen, source = _look(fleet, name, target)
    return _examined(fleet, seen, source, {"vm_": name, "target": target})


def pinned(fleet: Fleet, host: str, guests: list[str]) -> dict[str, str]:
    """Of these guests of the host, each that can go nowhere to the reasons, by the host's word."""
    calls = [{"vm_": name} for name in guests]
    answers = fleet.each(host, "virt.migratable", calls) if calls else []
    found: dict[str, str] = {}
    for name, one in zip(guests, answers, strict=True):
        try:
            said = Migratable.from_answer(one.get(), host)
        except errors.VirtError as exc:
            found[name] = exc.text
            continue
        if not said.migratable:
            found[name] = "; ".join(said.reasons)
    return found


def verdict(name: str, target: str, found: Migratable) -> str:
    """What ``virt.migratable`` found, as a sentence."""
    where = f" to {target}" if target else ""
    if not found.migratable:
        return f"{name} cannot be moved{where}: " + "; ".join(found.reasons)
    parts = [f"{name} can be moved{where}"]
    if found.disks:
        parts.append("disks: " + ", ".join(f"{disk} {how}" for disk, how in found.disks.items()))
    if found.certificates:
        first = min(found.certificates, key=lambda one: one.until)
        parts.append(f"certificates hold until {first.until[:10]} ({first.host})")
    return "; ".join(parts)


def _look(fleet: Fleet, name: str, target: str | None) -> tuple[MigrationLocations, str]:
    """(MigrationLocations, the guest's host)."""
    fleet.hosts(target)
    seen = locations(fleet)
    return seen, seen.host_of(names.guest(str(name)))


def _examined(
    fleet: Fleet, seen: MigrationLocations, source: str, asked: dict[str, Any]
) -> Migratable:
    target = asked["target"]
    asked = {**_reported(seen, target), **asked}
    answer = fleet.one(source, "virt.migratable", asked, long=True)
    found, why = Migratable.from_answer(answer, source), _closed(seen, target)
    return replace(found, migratable=False, reasons=(why, *found.reasons)) if why else found


def _all_reasons(
    fleet: Fleet,
    seen: MigrationLocations,
    source: str,
    asked: dict[str, Any],
    target: str | None,
    refusal: str,
) -> list[str]:
    """Why a named target does not take the guest: what is known here, and what both hosts say.
    target: None asks nothing of it."""
    try:
        more = _examined(fleet, seen, source, {**asked, "target": target}).reasons
    except errors.VirtError as exc:
        more = (exc.text,)
    return list(dict.fromkeys([refusal, *more]))


def _reported(seen: MigrationLocations, host: str | None) -> dict[str, Any]:
    """What a target has said of itself that its libvirt does not tell the source."""
    said = seen.hosts[host].to_answer() if host in seen.hosts else {}
    words = ("ratios", "limits", "certificates", "address", "unmounted")
    return {key: said[key] for key in words if said.get(key)}


def _terms(seen: MigrationLocations, found: Targets, host: str) -> dict[str, Any]:
    """The same, with the policy by which all hosts count."""
    return {**_reported(seen, host), "placement": found.terms[host].to_answer()}


def _closed(seen: MigrationLocations, host: str | None) -> str | None:
    """Why a host takes no guests at all: a sentence, or None."""
    if host in seen.unreachable:
        return f"{host}: {seen.unreachable[host]}"
    reason = seen.hosts[host].maintenance if host in seen.hosts else None
    return f"{host} is in maintenance: {reason}" if reason else None


class Migrate:
    """Moves a guest to the target, or where placement would have it.

    options: more arguments of the host's ``virt.migrate``. others: another host will do where the
    target refuses, as it does when no target is given. plan: where it goes, when it is one of many:
    then not all hosts are asked for what they have. keeper: who keeps room on this master.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        name: str,
        target: str | None,
        report: Report,
        options: dict[str, Any] | None = None,
        others: bool = False,
        plan: MovePlan | None = None,
        keeper: keepers.Keeper | None = None,
    ) -> None:
        self.plan, self.keeper = plan, keeper
        self.fleet, self.policy, self.report = fleet, policy, report
        self.name, self.target = str(name), target or None
        self.options, self.others = dict(options or {}), others
        self.request, self.warning = MigrationRequest(), ""
        self._has_waited = False

    def check(self) -> Checked:
        """Where it would move, or everything that is in the way."""
        name, reasons = self.name, Reasons()
        with reasons:
            with reasons:
                lock.refuse_taken(self.fleet.opts, names.guest(name))
            with reasons:
                keepers.refuse(self.fleet.opts, names.guest(name))
            source, target, found = self._plan()
            if found and not found.migratable:
                why = (*reasons.words, *found.reasons)
                text = f"{name} cannot be moved to {target}: {'; '.join(why)}"
                return Checked(name, text, reasons=why)
            reasons.hold()
            if not found:
                text = f"{name} is on {source} already"
                return Checked(name, text, more={"host": source}, nothing=True)
            text = f"{name} would be moved from {source} to {target}{self.warning}"
            more = {"host": source, "disks": found.disks}
            return Checked(name, text, _changes(source, target), more)
        return reasons.checked(name)

    def _plan(self) -> tuple[str, str, Migratable | None]:
        """(source, target, what ``virt.migratable`` says of the guest: None where it is there)."""
        fleet, target = self.fleet, self.target
        request = request_of(target, self.options, self.others)
        seen, source = _look(fleet, self.name, target)
        if source == target:
            return source, source, None
        why = _closed(seen, target)
        if target and why:
            asked = {**self.options, "vm_": self.name}
            # nobody tries to reach a host that is down: of the guest alone, then
            reached = None if target in seen.unreachable else target
            reasons = _all_reasons(fleet, seen, source, asked, reached, why)
            return source, target, Migratable(False, tuple(reasons))
        try:
            found = targets(fleet, self.policy, self.name, source, request, self.keeper)
        except errors.Refused as exc:
            if not target:
                raise
            asked = {**self.options, "vm_": self.name}
            reasons = _all_reasons(fleet, seen, source, asked, target, exc.words)
            return source, target, Migratable(False, tuple(reasons))
        refusals = {}
        for host in found.names:
            terms = _terms(seen, found, host)
            asked = {"vm_": self.name, "target": host, **terms, **self.options}
            answer = _examined(fleet, seen, source, asked)
            self.warning = f"; {found.warnings[host]}" if host in found.warnings else ""
            if answer.migratable or not _next_may_take(request, answer):
                return source, host, answer
            refusals[host] = "; ".join(answer.reasons)
        why = "; ".join(f"{host}: {reason}" for host, reason in refusals.items())
        return source, found.names[0], Migratable(False, (why,))

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, OperationFailed, ConnectionFailed; the message says where
        the guest is."""
        name = names.guest(self.name)
        self.fleet.hosts(self.target)  # an unknown target is said before anything is asked
        with lock.guest(self.fleet.opts, name, "virt.migrate"):
            try:
                keepers.refuse(self.fleet.opts, name)
                self.request = request_of(self.target, self.options, self.others)
                return self._migrate()
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise

    def _migrate(self) -> Result:
        seen = self._planned_hosts() or locations(self.fleet)
        if self.name in seen.unfinished:
            earlier = seen.unfinished[self.name]
            ended = self._end_earlier(earlier, seen)
            seen = locations(self.fleet)
            source = seen.host_of(self.name)
            KeyStore(self.fleet.opts).moved(self.name, earlier, source)
            if ended.outcome == MOVED and self.target in (None, source):
                return self._done(_ended(self.name, earlier, source), _changes(earlier, source))
        self._refuse_stopped(seen)
        source = seen.host_of(self.name)
        if seen.target_leftovers.get(self.name):
            self._take_away()
        if source == self.target:
            return self._done(f"{self.name} is on {source} already", {})
        if not self.request.others:
            self._takes_guests(seen)
        target, done = self._move_to_one(seen, source)
        KeyStore(self.fleet.opts).moved(self.name, source, target)
        done = self._cleaned(source, done)
        comment = _sentence(self.name, source, target, done)
        return self._done(comment, _changes(source, target), done)

    def _refuse_stopped(self, seen: MigrationLocations) -> None:
        """Raises OperationFailed where the guest was to leave in an evacuation that was ended."""
        if self.plan is None or self.plan.evacuated is None:
            return
        source = self.plan.source
        closed = seen.hosts[source].maintenance if source in seen.hosts else self.plan.evacuated
        if closed != self.plan.evacuated or lock.is_stopped(self.fleet.opts, source):
            raise errors.OperationFailed(f"the evacuation of {source} was ended")

    def _planned_hosts(self) -> MigrationLocations | None:
        """What both hosts of the plan say, when the guest is active on the one, and nothing of an
        earlier migration is in the way: one that is off there may run elsewhere. None: all are to
        be asked."""
        if self.plan is None:
            return None
        seen = locations(self.fleet, [self.plan.source, self.plan.targets.names[0]])
        here = [*seen.guests.get(self.name, {}).items()]
        active = [(self.plan.source, state) for state in facts.ACTIVE]
        earlier = {*seen.unfinished, *seen.target_leftovers}
        return seen if len(here) == 1 and here[0] in active and self.name not in earlier else None

    def _move_to_one(self, seen: MigrationLocations, source: str) -> tuple[str, Recovered]:
        """(the host that has taken it, what its old host answered): the first that does."""
        found = self._targets(seen, source)
        refusals = []
        for target in found.names:
            with slots.taken(
                self.fleet.opts, (source, target), self._wait, f"virt.migrate of {self.name}"
            ):
                self.report.step("target", f"{self.name}: moving it from {source} to {target}")
                if target in found.warnings:
                    words = f"{self.name}: {found.warnings[target]}"
                    self.report.step("warning", words, host=target)
                try:
                    seen = self._heard(seen, source, target)
                    return target, self._move(source, target, _terms(seen, found, target))
                except errors.Refused as exc:
                    # it is the source that says so, of a guest that is named already
                    why = exc.words.removeprefix(f"{source}: ")
                    why = why.removeprefix(f"{self.name} stays on {source}: ")
                    refusals.append(f"{target}: {why}")
                    self.report.step("refused", f"{self.name}: {refusals[-1]}", host=target)
        raise errors.Refused(f"no host took {self.name} from {source}: {'; '.join(refusals)}")

    def _heard(self, seen: MigrationLocations, source: str, target: str) -> MigrationLocations:
        """The same with what a target says of itself, if nobody has asked it yet, and after a wait
        with what both hosts say by now. Raises Refused where the target takes no guests by now,
        OperationFailed as _refuse_stopped does."""
        asked = [source, target] if self._has_waited else [target]
        if self._has_waited or target not in seen.hosts:
            more = locations(self.fleet, asked)
            silent = {host: why for host, why in seen.unreachable.items() if host not in asked}
            seen = replace(
                seen,
                hosts={**seen.hosts, **more.hosts},
                unreachable={**silent, **more.unreachable},
            )
        if self._has_waited:
            self._refuse_stopped(seen)
        why = _closed(seen, target)
        if why:
            raise errors.Refused(why)
        return seen

    def _targets(self, seen: MigrationLocations, source: str) -> Targets:
        if self.plan and self.plan.source == source:
            return self.plan.targets
        try:
            return targets(self.fleet, self.policy, self.name, source, self.request, self.keeper)
        except errors.Refused as exc:
            if self.request.others:
                raise
            asked = {**self.options, "vm_": self.name}
            reasons = _all_reasons(self.fleet, seen, source, asked, self.target, exc.words)
            raise errors.Refused("; ".join(reasons)) from exc

    def _done(self, comment: str, changes: dict[str, Any], done: Recovered | None = None) -> Result:
        self.fleet.tell(f"{self.report.tag}/done", {"guest": self.name, "message": comment})
        more = {"migration": done.to_answer()} if done else {}
        return Result(self.name, comment, changes, more)

    def _end_earlier(self, host: str, seen: MigrationLocations) -> Recovered:
        """A migration that was killed half way is ended first."""
        self.report.step(
            "recover", f"{self.name}: ending a migration that was broken off on {host}"
        )
        return ending.ended(self.fleet, host, self.name, seen.hosts)

    def _take_away(self) -> None:
        """What earlier attempts have left: it would be in the way."""
        *_, left = target_leftovers.everywhere(self.fleet, self.name)
        for host, why in left.items():
            self.report.step("left", f"{self.name}: on {host} {why}", host=host)

    def _cleaned(self, source: str, done: Recovered) -> Recovered:
        """What the source did, with what it could not delete alone: other hosts are asked now."""
        if not done.kept:
            return done
        try:
            gone, stay = target_leftovers.clean(self.fleet, source, self.name)
        except errors.VirtError:
            return done
        kept = {path: why for path, why in done.kept.items() if path not in gone}
        return replace(done, deleted=(*done.deleted, *gone), kept={**kept, **stay})

    def _wait(self, why: str) -> None:
        self._has_waited = True
        self.report.step("wait", f"{self.name} waits: {why}")

    def _takes_guests(self, seen: MigrationLocations) -> None:
        why = _closed(seen, self.target)
        if why:
            kind = errors.ConnectionFailed if self.target in seen.unreachable else errors.Refused
            raise kind(f"{self.name} stays where it is: {why}")

    def _move(self, source: str, target: str, terms: dict[str, Any]) -> Recovered:
        asked = {**terms, **self.options, "vm_": self.name, "target": target}
        watch = (f"salt/virt/migrate/{self.name}/", self._watch)
        answers = self.fleet.gather(
            [source], "virt.migrate", asked, timeout_s=SILENT_S, long=True, watch=watch
        )
        answer = answers[source]
        if not answer.ok and answer.kind != "failed":
            raise errors.ConnectionFailed(self._lost(source, answer))
        done = self._answered(answer, target)
        if done.outcome != MOVED:
            raise errors.OperationFailed(f"{source} answered {done.outcome!r} for {self.name}")
        if not isinstance(done, Moved):  # an earlier attempt was ended, perhaps to another host
            now = locations(self.fleet).host_of(self.name)
            if now != target:
                raise errors.OperationFailed(f"{_ended(self.name, source, now)}, not on {target}")
        return done

    def _answered(self, answer: Answer, target: str) -> Recovered:
        """What the source says that it did. Raises what it says of its failure, when the target was
        cleaned or with why not. Who refuses has begun nothing there, unless its own libvirt refused
        when disks were made already: the source then says that they stay."""
        try:
            return of_migrate(answer.get(), answer.host)
        except errors.Refused as exc:
            if not target_leftovers.are_named(exc.words, self.name):
                raise
            more = target_leftovers.after_failure(self.fleet, target, self.name)
            raise errors.Refused(f"{exc.words}; {more}" if more else exc.words) from exc
        except errors.OperationFailed as exc:
            more = target_leftovers.after_failure(self.fleet, target, self.name)
            raise errors.OperationFailed(f"{exc}; {more}" if more else exc.text) from exc

    def _watch(self, _tag: str, event: dict[str, Any]) -> None:
        text = event.get("text")
        if text:
            self.report.show(f"{self.name}: {text}")
        elif event.get("percent") is not None:
            self.report.progress(event["percent"], f"{self.name}: {_progress(event)}")

    def _lost(self, source: str, answer: Answer) -> str:
        """The source did not come back: where is the guest now?"""
        seen = locations(self.fleet)
        places = seen.guests.get(self.name, {})
        # nobody ends a migration that its hosts have completed without us: the key goes with it now
        if source in seen.hosts and len(places) == 1 and self.name not in seen.unfinished:
            KeyStore(self.fleet.opts).moved(self.name, source, next(iter(places)))
        known = ", ".join(f"{state} on {host}" for host, state in sorted(places.items()))
        return (
            f"{source}: {answer.error}; {self.name} is {known or 'on no host that answers'}; "
            f"call virt.migrate again to end it"
        )


def _ended(name: str, source: str, target: str) -> str:
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


def _sentence(name: str, source: str, target: str, done: Recovered) -> str:
    text = f"{name} was moved from {source} to {target}"
    if isinstance(done, Moved):  # not when only an earlier attempt had to be ended
        text += f" over {done.transport}"
        text += f" in {done.time_ms / 1000:.1f} s" if done.time_ms is not None else ""
        text += f"; downtime {done.downtime_ms} ms" if done.downtime_ms is not None else ""
    left = [f"{path} was left on {source}: {why}" for path, why in done.kept.items()]
    lost = (done.checkpoints_lost or {}).items()
    left += [f"checkpoint {one} is not known on {target}: {why}" for one, why in lost]
    return "; ".join([text, *left])


def mover(
    opts: dict[str, Any],
    policy: PlacementPolicy,
    others: bool = False,
    plans: Plans | None = None,
) -> moves.Migrate:
    """What operations.moves calls for each guest, in threads of its own.

    opts: the master's configuration. others: another host will do where the target refuses; it
    returns the one that took the guest. plans: where each goes, by who calls for the moves.
    """

    def move(guest: str, target: str) -> str:
        with Fleet(opts) as fleet:
            report = Report(fleet, guest, "migrate")
            plan = plans.get(guest) if plans else None
            done = Migrate(fleet, policy, guest, target, report, others=others, plan=plan).run()
        new: str = done.changes.get("host", {}).get("new", target)
        return new

    return move
