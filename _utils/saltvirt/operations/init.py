"""Deploy a guest: place, create on the host, accept its key, start, confirm."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors, names, settings, units
from saltvirt.answers.guests import Leftovers
from saltvirt.answers.made import GuestKey, Made
from saltvirt.answers.power import Power
from saltvirt.fleet import authorization, pillars, secret, target
from saltvirt.fleet.answer import BAD, DOWN, LOST, SILENT, Answer
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import (
    explain,
    find,
    hints,
    inventory,
    keepers,
    lock,
    owners,
    promised,
    purge,
    reserved,
    slots,
    unique,
    wait,
)
from saltvirt.operations.begun import Begun
from saltvirt.operations.joint import ALONE, Jobs
from saltvirt.operations.lifecycle import RUNNING, VERBS
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.picture import Picture, kind_of, others_keys
from saltvirt.operations.report import Report
from saltvirt.placement import account, choose, facts
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.revert import Revert
from saltvirt.spec import base, deploy

GROUP_POLICIES = ("spread", "separate", "gather")
# in the guest's record: which operation made it, so that nobody takes another one's for it
OPERATION = "operation"
SECRET_ARGUMENTS = {
    "config", "grains", "autosign_grains", "startup_states", "user_data", "pub_key", "priv_key",
}  # fmt: skip


@dataclass
class InitRequest:
    """What the runner was asked for.

    cpu: count. mem: MiB, or a size with a unit. labels: that the host must have; prefer:
    that make it a better one. wait_for: one of wait.KINDS, and at most so many seconds.
    pillar: what the master tells the guest's minion. name_is_free: the operator knows that no host
    which does not answer has a guest of that name. ha: how it is to be kept, for the Keeper.
    arguments: everything else for the host's ``virt.init``, by name. operation: what tells this
    guest from one that somebody else makes under its name.
    """

    name: str
    cpu: Any
    mem: Any
    image: str | None
    hypervisor: str = "kvm"
    host: str | None = None
    start: bool = True
    groups: tuple[str, ...] | str = ()
    group_policy: str = "spread"
    labels: dict[str, Any] = field(default_factory=dict)
    prefer: dict[str, Any] = field(default_factory=dict)
    wait_for: str | None = None
    wait_s: float = 300
    pillar: dict[str, Any] | None = field(default=None, repr=False)
    name_is_free: bool = False
    ha: Any = None
    arguments: dict[str, Any] = field(default_factory=dict)
    operation: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def __post_init__(self) -> None:
        self.name = str(self.name)  # the command line turns 123 into a number
        self.arguments = dict(self.arguments)
        for word in ("vm_type", "hypervisor_type"):  # Salt's other words for it
            self.hypervisor = self.arguments.pop(word, None) or self.hypervisor
        if self.hypervisor is not None and not isinstance(self.hypervisor, str):
            raise errors.InvalidInput(f"hypervisor {units.shown(self.hypervisor)} is not a text")
        if self.arguments.get("seed") is not None:
            self.arguments["seed"] = deploy.seed(self.arguments["seed"], "seed")
        self.groups = _groups(self.groups)
        base.mapping(self.arguments.get("metadata") or {}, "metadata")

    @property
    def seeded(self) -> bool:
        """Whether a host prepares the guest's system, and so the guest has a key: as ``virt.init``
        does unless it is told."""
        given = self.arguments.get("seed")
        return given is None or bool(given)

    def for_host(self) -> dict[str, Any]:
        """The arguments of the host's ``virt.init``: it makes the guest and leaves it off."""
        arguments = {
            "name": self.name, "cpu": self.cpu, "mem": self.mem, "image": self.image,
            "hypervisor": self.hypervisor, **self.arguments, "start": False, "approve_key": True,
        }  # fmt: skip
        given = arguments.get("metadata") or {}
        return {**arguments, "metadata": {**given, **self.kept(), OPERATION: self.operation}}

    def kept(self) -> dict[str, str]:
        """What is kept with the guest: it holds wherever the guest is moved later."""
        asked = {name: getattr(self, name) for name in ("labels", "prefer")}
        found = {
            name: json.dumps(_labels(value, name), sort_keys=True)
            for name, value in asked.items()
            if value
        }
        if self.groups:
            found.update(groups=" ".join(self.groups), group_policy=self.group_policy)
        return found

    def for_all(self) -> dict[str, Any]:
        """The arguments by which every host says what the guest would take of it: without
        what is only to be read in the guest, which may be secret."""
        public = {k: v for k, v in self.for_host().items() if k not in SECRET_ARGUMENTS}
        public["metadata"] = {k: v for k, v in public["metadata"].items() if k != OPERATION}
        if isinstance(public.get("graphics"), dict):
            public["graphics"] = {k: v for k, v in public["graphics"].items() if k != "password"}
        return public

    def questions(self) -> list[Callable[[], object]]:
        """Each raises InvalidInput where one part of what was said is wrong."""
        return [
            lambda: names.guest(self.name),
            self._vcpus,
            self._memory_kib,
            lambda: _labels(self.labels, "labels"),
            lambda: _labels(self.prefer, "prefer"),
            lambda: _group_policy(self.group_policy),
        ]

    def _vcpus(self) -> int:
        cpu = self.cpu.get("maximum", 1) if isinstance(self.cpu, dict) else self.cpu
        return units.parse_count(cpu, "cpu")

    def _memory_kib(self) -> tuple[int, int]:
        """(at boot, at most)."""
        mem, most = self.mem, None
        if isinstance(mem, dict):
            most, mem = mem.get("max"), mem.get("boot") or mem.get("current")
        boot_kib = units.parse_kib(mem, what="mem")
        return boot_kib, units.parse_kib(most, what="mem max") if most else 0

    def request(self) -> facts.PlacementRequest:
        """The placement request. Raises InvalidInput for a bad name, cpu or mem."""
        name, vcpus = names.guest(self.name), self._vcpus()
        memory_kib, max_memory_kib = self._memory_kib()
        return facts.PlacementRequest(
            name=name,
            vcpus=vcpus,
            memory_kib=memory_kib,
            max_memory_kib=max_memory_kib,
            hypervisor=self.hypervisor or "kvm",
            arch=self.arguments.get("arch"),
            image=self.image,
            labels=_labels(self.labels, "labels"),
            prefer=_labels(self.prefer, "prefer"),
            groups=tuple(self.groups),
            group_policy=_group_policy(self.group_policy),
            only=self.host,
            by_profile=True,
        )


def _groups(value: object) -> tuple[str, ...]:
    """The names of groups: of a list, or of one text."""
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, (list, tuple)):
        raise errors.InvalidInput(f"groups must be a list of names, not {units.shown(value)}")
    for one in value:
        if not isinstance(one, str) or not one.isprintable():
            raise errors.InvalidInput(f"groups: {units.shown(one)} is not a name")
    return tuple(value)


def _labels(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise errors.InvalidInput(f"{what}: give a dictionary of labels, not {value!r}")
    try:
        json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as exc:
        raise errors.InvalidInput(
            f"{what}: {units.shown(value)} is more than names with texts and numbers"
        ) from exc
    return value


def _group_policy(value: str) -> str:
    if value not in GROUP_POLICIES:
        known = ", ".join(GROUP_POLICIES)
        raise errors.InvalidInput(f"group_policy {value!r}: it is one of {known}")
    return value


@dataclass(frozen=True)
class Placed:
    """What came out: the host, libvirt's word for its state, what the host made."""

    host: str
    state: str
    made: GuestKey


class Init:
    """Deploys a guest. Whatever fails, everything made so far is undone; but a guest that was
    started and did not answer in time stays: somebody will want to look at it.

    picture: where the guest was placed as one of many, and its name found free; None: all hosts are
    asked. look: as unique.resolve takes it. jobs: how its host is asked. keeper: who keeps guests
    and room on this master, if anybody does.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: PlacementPolicy,
        wanted: InitRequest,
        report: Report,
        picture: Picture | None = None,
        look: unique.Look = find.locations,
        jobs: Jobs = ALONE,
        keeper: keepers.Keeper | None = None,
    ) -> None:
        self.picture, self.look, self.jobs = picture, look, jobs
        self.keeper = keeper
        self.wish: Any = None
        self.room: keepers.Room | None = None
        self.promises: promised.Promises | None = None
        self.hosts: dict[str, facts.Host] = {}
        self.warning = ""
        self.kept: Result | None = None
        self.fleet = fleet
        self.policy = policy
        self.wanted = wanted
        self.report = report
        self.keys = KeyStore(fleet.opts)
        self.slot = slots.Slots(())
        self.unreachable: dict[str, str] = {}
        self.terms: dict[str, account.PlacementTerms] = {}

    def check(self) -> Checked:
        """Where it would be made, and what it would take there."""
        reasons = Reasons()
        with reasons:
            request = self.request(reasons)
            with reasons:
                lock.refuse_taken(self.fleet.opts, request.name)
            decision, hosts = self.decide(request, reasons)
            best = next(host for host in hosts if host.name == decision.ranked[0].host)
            if request.name not in {guest.name for guest in best.guests}:
                with reasons:
                    if self.wish:  # it asks the same
                        self.check_ties(best.name, reasons)
                    else:
                        self.ask(best.name)
            reasons.hold()
            table = {"table": explain.table(decision, {})}
            return planned(request.at(best), best.name, table, self.words("would be"))
        return reasons.checked(self.wanted.name)

    def run(self) -> Result:
        """Raises InvalidInput, AlreadyExists, Refused, KeyRefused, OperationFailed."""
        reasons = Reasons(first=True)
        request = self.request(reasons)
        with lock.guest(self.fleet.opts, request.name, "virt.init"), self.promising():
            try:
                with self.deploying() as self.slot:
                    decision, _ = self.decide(request, reasons)
                    for host, why in sorted(self.unreachable.items()):
                        self.left_out(host, why)
                    placed = self.make(request, decision)
                    hints.keep(self.fleet.opts, request.name, placed.host)
                if self.wanted.wait_for and self.wanted.start:
                    self.wait(placed.host, self.wanted.wait_for)
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise
        comment = f"{request.name} is {placed.state} on {placed.host}{self.words('is')}"
        more = {"host": placed.host, "state": placed.state}
        changes = {"created": placed.made.to_answer(), **(self.kept.changes if self.kept else {})}
        return Result(request.name, comment, changes, more)

    @contextlib.contextmanager
    def promising(self) -> Iterator[None]:
        """What it is promised is its own for the block, unless it fails."""
        picture = self.picture
        promises = (
            contextlib.nullcontext(picture.promises)
            if picture
            else promised.of(self.fleet.opts, self.keeper)
        )
        with promises as self.promises:
            try:
                yield
            except BaseException:
                if self.promises:
                    self.promises.withdraw(self.wanted.name)
                raise

    def promise(self, request: facts.PlacementRequest, decision: choose.Decision) -> None:
        """The first host of the Decision is to have it."""
        if self.promises and decision.ranked:
            host = decision.ranked[0].host
            guest = facts.as_guest(request.at(self.hosts[host]))
            self.promises.make(host, guest, self.wanted.ha)

    def words(self, verb: str) -> str:
        """What is said beside where it is made."""
        kept = f"; {self.kept.comment}" if self.kept else ""
        if self.wish and not kept:
            kept = f"; it {verb} given to high availability"
        return f"{kept}; {self.warning}" if self.warning else kept

    def make(self, request: facts.PlacementRequest, decision: choose.Decision) -> Placed:
        """Placed, on one of the hosts of the Decision."""
        owners.forget_unrecorded(self.fleet.opts, request.name)  # of an earlier guest
        undo = Revert()
        begin = self.fleet.opts, request.name, "virt.init", undo, self.wanted.operation
        with naming_what_stays(undo), Begun(*begin) as begun, undo:
            placed = self.create(decision, undo, begun)
            undo.success()
        return placed

    def deploying(self) -> contextlib.AbstractContextManager[slots.Slots]:
        """One of the slots for deployments, as a context manager."""
        what = f"virt.init of {self.wanted.name}"
        return self.jobs.deploying(self.fleet.opts, self.queued, what)

    def queued(self, why: str) -> None:
        """Says that this one has to wait for others."""
        self.report.step("queued", f"{self.wanted.name}: waiting: {why}")

    def left_out(self, host: str, why: str) -> None:
        """Says that a host is no candidate because it was not heard."""
        self.report.step("unreachable", f"{self.wanted.name}: without {host}: {why}", host=host)

    def request(self, reasons: Reasons) -> facts.PlacementRequest:
        """What was asked for, as far as it can be judged without the hosts."""
        with reasons:
            if self.wanted.wait_for:
                wait.check(self.wanted.wait_for)
        with reasons:
            self.check_pillar()
        for question in self.wanted.questions():
            with reasons:
                question()
        with reasons:
            self.wish = keepers.wish(self.keeper, self.wanted.ha, bool(self.wanted.start))
        with reasons:
            request = self.wanted.request()
            target.refuse_host(self.fleet.opts, request.name)
            refuse_kept(self.fleet, self.keeper, request.name)
        reasons.hold()
        return request

    def check_pillar(self) -> None:
        """A pillar is bound to the guest's key, so there has to be one."""
        if self.wanted.pillar:
            pillars.check(self.fleet.opts, self.wanted.pillar)
            if not self.wanted.seeded:
                raise errors.InvalidInput("pillar: the guest gets a minion's key only with seed")

    def decide(
        self, request: facts.PlacementRequest, reasons: Reasons
    ) -> tuple[choose.Decision, list[facts.Host]]:
        """(where it shall go, what the hosts said of themselves). Changes nothing."""
        if self.picture:
            return self._decided(request, reasons, self.picture), []
        known = self.fleet.hosts(self.wanted.host)
        asked = self.wanted.for_all()
        hosts, unreachable = inventory.gather(self.fleet, self.fleet.hosts(), asked, patient=True)
        self.unreachable = unreachable
        with reasons:
            check_name(self.fleet, self.wanted, hosts, self.unreachable)
            self.check_key(request.name)
        self.hosts = {host.name: host for host in hosts}
        self.room = self.keeper.room(hosts) if self.keeper else None
        with promised.turn(self.promises, self.room, hosts):
            decision = self.place(request, [host for host in hosts if host.name in known])
            self.promise(request, decision)
        decision.rejected.update((h, ("down", why)) for h, why in unreachable.items() if h in known)
        with reasons:
            if not decision.ranked:
                raise nowhere(request.name, decision)
        with reasons:
            self.check_secrets(one.host for one in decision.ranked[: self.attempts()])
        if not decision.ranked:
            reasons.hold()
        self.terms = {host.name: account.terms(host, self.policy) for host in hosts}
        self.warning = decision.warning
        return decision, hosts

    def _decided(
        self, request: facts.PlacementRequest, reasons: Reasons, picture: Picture
    ) -> choose.Decision:
        """The host that it was placed on, with all of its kind; another one, when that is gone."""
        self.unreachable = picture.untold()
        with reasons:
            self.check_key(request.name)
        there = picture.host_of(request.name)
        if there:
            self.warning = picture.warning_of(request.name)
            return choose.Decision((choose.Candidate(there, 0.0),), {})
        decision = picture.place(self.fleet, self.wanted, request, wish=self.wish)
        with reasons:
            if not decision.ranked:
                raise nowhere(request.name, decision)
        self.warning = decision.warning
        return decision

    def candidates(self, decision: choose.Decision) -> Iterator[str]:
        """The hosts that are asked to make it, one by one: each but the first when the one before
        it has refused."""
        refused: list[str] = []
        while decision.ranked:
            refused.append(decision.ranked[0].host)
            yield refused[-1]
            request = self.wanted.request()
            if self.picture is None:
                rest = choose.Decision(decision.ranked[1:], decision.rejected)
                with promised.turn(self.promises, self.room, self.hosts.values()):
                    decision = reserved.best(rest, self.room, request, self.hosts, self.wish)
                    self.promise(request, decision)
            else:
                self.picture.look_again(self.fleet, refused[-1], without=self.wanted.name)
                decision = self.picture.place(
                    self.fleet, self.wanted, request, but=refused, wish=self.wish
                )
            self.warning = decision.warning

    def place(self, request: facts.PlacementRequest, hosts: list[facts.Host]) -> choose.Decision:
        """The ranking of the hosts, and why the others are none for it."""
        others = others_keys(self.fleet, self.wanted, [host.name for host in hosts])
        if self.keeper and self.wish:
            others |= self.keeper.others(request.name, self.wish, hosts)
        able = [host for host in hosts if host.name not in others]
        decision = choose.choose(able, request, self.policy)
        decision.rejected.update(others)
        return reserved.best(decision, self.room, request, self.hosts, self.wish)

    def _for(self, host: str) -> dict[str, Any]:
        """The arguments of ``virt.init`` on the host."""
        terms = self.picture.terms(host) if self.picture else self.terms.get(host)
        return {**self.wanted.for_host(), "placement": terms.to_answer() if terms else None}

    def ask(self, host: str) -> None:
        """Has the host say, for a test, whether it could make the guest: it looks at the image,
        too. Raises what it says; without what is secret, which only the making needs."""
        asked = {**self._for(host), "test": True}
        self.fleet.one(host, "virt.init", secret.without(asked), long=True)

    def check_ties(self, host: str, reasons: Reasons) -> None:
        """What would keep the guest from being started elsewhere, where it is to be."""
        if not (self.keeper and self.wish):
            return
        picture, key = self.picture, (kind_of(self.wanted), host)
        ties = picture.ties.get(key) if picture else None
        if ties is None:
            seen = {one.name: one for one in picture.hosts} if picture else self.hosts
            ties = self.keeper.ties(self.fleet, self.wanted.name, seen[host], self._for(host))
            if picture:
                picture.ties[key] = ties
        for why in ties:
            with reasons:
                raise errors.InvalidInput(f"{self.wanted.name} could run on {host} alone: {why}")

    def check_secrets(self, hosts: Iterable[str]) -> None:
        """They go to hosts that the master's configuration names."""
        words = [
            *secret.split(self.wanted.for_host())[1],
            *(["pillar"] if self.wanted.pillar else []),
        ]
        for host in hosts:
            secret.refuse_claimed(self.fleet.opts, host, words)

    def check_key(self, name: str) -> None:
        """A key that the master already trusts under this name, which is free, is no new
        guest's."""
        if self.wanted.seeded:
            unique.refuse_key(self.keys, name)

    def create(self, decision: choose.Decision, undo: Revert, begun: Begun) -> Placed:
        """Placed, by the first host of the ranking that takes it.

        A host without room had it a moment ago: somebody else was faster, and the next is asked,
        however many there are. What fails for another reason is one of the ``attempts``. A host may
        refuse to start a guest that it has created: that guest is removed before the next is asked.
        """
        refusals: list[str] = []
        left = self.attempts()
        for host in self.candidates(decision):
            self.check_secrets([host])
            self.check_ties(host, Reasons(first=True))
            if self.warning:
                self.report.step("warning", f"{self.wanted.name}: {self.warning}", host=host)
            self.report.step("placed", f"{self.wanted.name}: creating it on {host}", host=host)
            mark = undo.mark()
            try:
                begun.on(host)
                return self.create_on(host, undo, begun)
            except errors.Refused as exc:
                undo.run(mark)
                if undo.failed:  # on another host the guest would exist a second time
                    raise errors.OperationFailed(exc.words) from exc
                left -= not isinstance(exc, errors.NoRoom)
                refusals.append(exc.words)
                self.report.step("refused", f"{self.wanted.name}: {exc.words}", host=host)
                if not left:
                    break
        raise errors.Refused(f"no host took {self.wanted.name}: {refusals_text(refusals)}")

    def wait(self, host: str, kind: str) -> None:
        """Until the guest has answered; then the volume that told it who it is can go."""
        name = self.wanted.name
        self.report.step("waiting", f"{name}: waiting for its {kind}", host=host)
        took_s = wait.until(self.fleet, host, name, kind, self.wanted.wait_s)
        # a ping can be answered by any minion, so what tells the guest who it is goes by proof
        if kind == "minion" and target.reported(self.fleet.opts, name):
            self.fleet.one(host, "virt.seed_eject", {"name": name}, long=True)
        self.report.step("answered", f"{name}: its {kind} answered after {took_s:.0f} s")

    def attempts(self) -> int:
        return settings.integer(settings.of_master(self.fleet.opts), "attempts", 3)

    def create_on(self, host: str, undo: Revert, begun: Begun) -> Placed:
        name = self.wanted.name
        pillar = self.wanted.pillar
        asked, hidden = secret.split(self._for(host))
        handing_in = authorization.handing_in(self.fleet, host, name, undo, pillar, hidden)
        with handing_in if self.wanted.seeded or hidden else contextlib.nullcontext():
            made = self.make_on(host, asked)
            undo.push(f"purge {name} on {host}", purge.on_host, self.fleet, host, name)
            handed_in(self.fleet, self.report, host, name, made, pillar)
        unique.resolve(
            self.fleet, self.report, name, host,
            seeded=self.wanted.seeded, sure=self.wanted.name_is_free,
            look=self.look,
        )  # fmt: skip
        begun.starting()
        by = self.policy if self.wanted.start else None
        state = deliver(self.fleet, self.report, host, name, start_by=by, jobs=self.jobs)
        if self.keeper and self.wish:
            self.keep(self.keeper, host, undo)
        return Placed(host, state, made)

    def keep(self, keeper: keepers.Keeper, host: str, undo: Revert) -> None:
        """Gives it to who keeps guests: last, so that nobody else starts what is half made."""
        name = self.wanted.name
        keeping = keeper.keeping(self.fleet, name, self.wish, on=host)
        if keeping:
            undo.push(f"take {name} from high availability", keeper.forget, self.fleet, name)
            done = keeping.run()
            self.kept = done if isinstance(done, Result) else None
            self.report.step("kept", f"{name}: given to high availability", host=host)

    def make_on(self, host: str, asked: dict[str, Any]) -> GuestKey:
        """What the host has made, when it made the guest; its key has come in by then."""
        name = self.wanted.name
        watch = (f"{self.report.tag}/", self.report.host_says)
        quiet = (slots.QUIET_S, slots.place_s(self.fleet.opts), self.idle)
        answer = self.jobs.ask(self.fleet, host, "virt.init", asked, watch, quiet)
        if answer.kind == DOWN:  # it was told nothing
            raise errors.Refused(f"{host}: {answer.error}")
        if answer.kind in (SILENT, BAD):
            raise errors.ConnectionFailed(
                f"{host}: {answer.error}; it may still be creating {name}: salt-run virt.repair "
                f"name={name} shows what is left of it"
            )
        made = (
            self.settled(host, answer)
            if answer.kind == LOST
            else Made.from_answer(answer.get(), host)
        )
        self.slot.free()  # what follows is light
        return made

    def idle(self) -> None:
        """Its host does nothing, or for very long: others need not wait for this one."""
        self.slot.free()
        text = f"{self.wanted.name}: no progress, or very long; others no longer wait for its end"
        self.report.step("quiet", text)

    def settled(self, host: str, lost: Answer) -> GuestKey:
        """What a host has made that ended the job, and whose answer is lost: it is asked.

        Raises Refused when it has made nothing, AlreadyExists when the guest there is somebody
        else's, ConnectionFailed when that cannot be said.
        """
        name, why = self.wanted.name, f"{host}: {lost.error}"
        try:
            has = find.leftovers(self.fleet, host, long=True)
            self.made_here(host, has)
            half = name in has.unfinished
            if half:
                purge.leftover(self.fleet, host, name, disks="made")
        except errors.AlreadyExists as exc:
            raise errors.AlreadyExists(f"{why}; {exc.text}") from exc
        except errors.VirtError as exc:
            raise errors.ConnectionFailed(
                f"{why}; {host} may have created {name}: salt-run virt.repair name={name} shows "
                f"what is left of it ({exc.text})"
            ) from exc
        if half:
            raise errors.Refused(f"{why}; the partially created {name} was removed")
        if name not in has.guests:
            raise errors.Refused(f"{why}; nothing was created there")
        key = self.keys.accepted(name)
        if self.wanted.image and self.wanted.seeded and not key:
            raise errors.ConnectionFailed(
                f"{why}; {name} exists there and stays as it is, but the master did not get its "
                "key: "
                f"salt-run virt.repair name={name} shows what to do"
            )
        self.report.step("found", f"{name}: {lost.error}; it is there", host=host)
        return GuestKey(name=name, host=host, pub_key=key)

    def made_here(self, host: str, has: Leftovers) -> None:
        """Raises unless the guest of this name there, if there is one, is this operation's.

        has: what the host says. Raises AlreadyExists for another one's, which
        stays, and OperationFailed where the host does not tell: an older version.
        """
        name = self.wanted.name
        if name not in has.guests:
            return
        if has.operations is None:
            raise errors.OperationFailed(
                f"{host} does not say who created {name}: update Salt Virt there"
            )
        if has.operations.get(name) != self.wanted.operation:
            raise errors.AlreadyExists(
                f"{name} on {host} was created by somebody else, and stays as it is"
            )


def check_name(
    fleet: Fleet,
    wanted: InitRequest,
    hosts: Iterable[facts.Host],
    unreachable: dict[str, str],
    files: find.Files | None = None,
) -> None:
    """Raises when the name is taken, or may be. hosts, unreachable: what all of them said, and who
    said nothing. files: of the unreachable, when many names are asked about."""
    name = wanted.name
    for host in hosts:
        unique.refuse_case(name, {guest.name: [host.name] for guest in host.guests})
        there = next((guest for guest in host.guests if guest.name == name), None)
        if there is not None:
            half = f" (being created, or partially created: see virt.repair name={name})"
            raise errors.AlreadyExists(
                f"{name} exists already, on {host.name}{half * there.creating}"
            )
    unique.check(
        fleet, name, unreachable, seeded=wanted.seeded,
        sure=wanted.name_is_free, files=files,
    )  # fmt: skip


def refuse_kept(fleet: Fleet, keeper: keepers.Keeper | None, name: str) -> None:
    """Raises where somebody keeps a guest of the name: it may be nowhere at the moment, and be
    started any time."""
    keepers.refuse(fleet.opts, name)
    if keeper:
        keeper.refuse_name(name)


def planned(
    asked: facts.PlacementRequest, host: str, more: dict[str, Any], words: str = ""
) -> Checked:
    """The answer to ``test=True``. asked: the request, as this host would count it. words: what
    else is said."""
    takes = {
        "host": host, "vcpus": asked.vcpus, "memory_mib": asked.memory_kib // 1024,
        "disk_bytes": asked.disk_bytes, "pools": asked.pools,
        "bridges": sorted(asked.bridges), "networks": sorted(asked.networks),
    }  # fmt: skip
    disk = units.human_bytes(asked.disk_bytes + sum(asked.pools.values()))
    comment = (
        f"{asked.name} would be created on {host}: {units.counted(asked.vcpus, 'vCPU')}, "
        f"{takes['memory_mib']} MiB of memory, {disk} of disk{words}"
    )
    return Checked(asked.name, comment, {"created": takes}, {"host": host, **more})


@contextlib.contextmanager
def naming_what_stays(undo: Revert) -> Iterator[None]:
    """Around an operation and its Revert: its error names what could not be undone, too."""
    try:
        yield
    except errors.VirtError as exc:
        if not undo.failed:
            raise
        left = "; ".join(undo.failed)
        raise type(exc)(f"{exc.text}; could not undo: {left}; see salt-run virt.repair") from exc


def handed_in(
    fleet: Fleet,
    report: Report,
    host: str,
    name: str,
    made: GuestKey,
    pillar: dict[str, Any] | None = None,
) -> None:
    """Sees that the host answers for this guest, and that the key it speaks of came in.

    made: the host's answer, which decides nothing: the key comes by the ext_pillar virtkey, where
    Salt knows who sends it. pillar: for the guest's minion. Raises KeyRefused, OperationFailed,
    InvalidInput.
    """
    if made.name != name:
        raise errors.OperationFailed(f"{host} was asked for {name} and answered for {made.name!r}")
    given, key = made.pub_key, KeyStore(fleet.opts).accepted(name)
    if given and not (key and given.split() == key.split()):
        raise errors.KeyRefused(
            f"{host}: the master did not get the key of {name} by the ext_pillar virtkey; "
            f"the logs of the master and of {host} say why (an older version there: salt {host} "
            "saltutil.sync_all)"
        )
    if given:
        report.step("accepted", f"{name}: key accepted", host=host)
    elif pillar:
        raise errors.InvalidInput(f"pillar: {name} has no disk of an image, so no minion")


def deliver(
    fleet: Fleet,
    report: Report,
    host: str,
    name: str,
    *,
    start_by: PlacementPolicy | None = None,
    jobs: Jobs = ALONE,
) -> str:
    """What follows when a host has made a guest: its start, libvirt's word for its state.

    start_by: the placement policy by which it is started; None: it is not. jobs: how the host is
    asked to start it. Raises OperationFailed, NoRoom.
    """
    if start_by:
        state = _started(fleet, host, name, start_by, jobs)
    else:
        state = _state(fleet, host, name)
    if start_by and state != RUNNING:
        raise errors.OperationFailed(f"{host}: {name} was started but libvirt says {state}")
    report.step("done", f"{name}: {state}", host=host, state=state)
    return state


def _started(fleet: Fleet, host: str, name: str, policy: PlacementPolicy, jobs: Jobs) -> str:
    """Starts it: its state after that; when the host's answer is missing, it is asked for that."""
    asked = {
        "name": name, "verb": "start", "when": [*VERBS["start"].before],
        "placement": account.terms(None, policy).to_answer(),
    }  # fmt: skip
    try:
        told = Power.from_answer(jobs.ask(fleet, host, "virt.power", asked).get(), host)
    except errors.ConnectionFailed:
        if _state(fleet, host, name) != RUNNING:
            raise
        return RUNNING
    if told.before is None:
        raise errors.OperationFailed(f"{host}: {name} is no longer there")
    return told.after or told.before


def _state(fleet: Fleet, host: str, name: str) -> str:
    found: str = fleet.one(host, "virt.vm_state", {"vm_": name}).get(name)
    return found


def refusals_text(refusals: list[str]) -> str:
    """The refusals of many hosts as one clause; of a crowd the first ones."""
    more = len(refusals) - choose.NAMED
    shown = "; ".join(refusals[: choose.NAMED])
    return f"{shown}; and {more} more" if more > 0 else shown


def nowhere(name: str, decision: choose.Decision) -> errors.VirtError:
    """The error when no host is left: what every host says against the request is its fault."""
    reasons = set(decision.rejected.values())
    if len(reasons) == 1 and next(iter(reasons))[0] == "profile":
        return errors.InvalidInput(f"{name}: {next(iter(reasons))[1]}")
    return errors.Refused(f"no host can take {name}: {decision.reasons()}")
