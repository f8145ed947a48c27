"""Move a guest, from the master: find it, choose the target, let its host do it.

Its host confirms the move with both libvirts before it reports it: nobody is asked again.
"""

from dataclasses import dataclass, field, replace

from saltvirt import errors, names
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import find, inventory, leavings, lock, slots
from saltvirt.placement import account, choose, facts

MOVED = "moved"
# the host itself notices a dead peer after 20 s and libvirt after 30: be more patient
SILENT_S = 60


def run(fleet, policy, name, target, report, options=None, others=False):
    """Moves the guest; the runner's answer: {name: {result, comment, changes, …}}.

    policy: placement's. report: a report.Report. options: dict of arguments for the host's
    ``virt.migrate``. others: another host will do where the target refuses, as it does when no
    target is given.
    Raises NotFound, InvalidInput, OperationFailed, ConnectionFailed; the message says where
    the guest is.
    """
    name = names.guest(str(name))
    fleet.hosts(target or None)  # an unknown target is said before anything is asked
    with lock.guest(fleet.opts, name, "virt.migrate"):
        try:
            options, wish = wished(target, options, others)
            return _Migration(fleet, policy, name, wish, report, options).run()
        except errors.VirtError as exc:
            report.failed(exc)
            raise


@dataclass(frozen=True)
class Census(find.Census):
    """unfinished: name to the host that has a broken-off migration of it. leavings: name to the
    hosts that have something of an undone one. hosts: id to what ``virt.migrate_census`` said of
    the host itself."""

    unfinished: dict = field(default_factory=dict)
    leavings: dict = field(default_factory=dict)
    hosts: dict = field(default_factory=dict)


def census(fleet):
    """Where all guests are, and what their hosts say of themselves."""
    found = Census()
    for answer in fleet.ask(fleet.hosts(), "virt.migrate_census"):
        if not answer.ok:
            found.unheard[answer.host] = answer.error
            continue
        found.hosts[answer.host] = answer.data
        for name, state in answer.data["guests"].items():
            found.guests.setdefault(name, {})[answer.host] = state
        for name in answer.data["unfinished"]:
            found.unfinished[name] = answer.host
        for name in answer.data.get("leavings", ()):
            found.leavings.setdefault(name, []).append(answer.host)
    return found


def abort(fleet, name):
    """Ends a running migration; (the host that the guest stays on, {host: why something of it is
    still there}).

    While it moves the guest is on two hosts, and only its old one knows of a migration.
    """
    name = names.guest(str(name))
    unfinished = census(fleet).unfinished
    if name not in unfinished:
        raise errors.OperationFailed(f"no host has a migration of {name} under way")
    fleet.one(unfinished[name], "virt.migrate_abort", {"vm_": name}, long=True)
    *_, left = leavings.everywhere(fleet, name)
    return unfinished[name], left


@dataclass(frozen=True)
class Targets:
    """names: of the hosts that may take the guest, best first. terms: host to what goes with the
    request."""

    names: list
    terms: dict


def targets(fleet, policy, name, source, wish):
    """The Targets for a guest of the source. wish: Wish.

    What the guest needs is read from its definition, and what virt.init was asked for is kept with
    it: all of it holds for its next host as it held for its first. Raises Refused with each host's
    reason when none is left.
    """
    asked = [source, wish.target] if wish.target and not wish.others else fleet.hosts()
    hosts, unheard = inventory.gather(fleet, sorted(set(asked)))
    here = next((host for host in hosts if host.name == source), None)
    if here is None:
        raise errors.ConnectionFailed(f"{source}: {unheard.get(source, 'it did not answer')}")
    guest = next((guest for guest in here.guests if guest.name == name), None)
    if guest is None:
        raise errors.NotFound(f"{name} is not on {source} any more: call it again")
    request = facts.of_guest(guest, here)
    # whom the operator names is not one that placement chooses
    policy = replace(policy, exclude=tuple(h for h in policy.exclude if h != wish.target))
    others = [host for host in hosts if host.name != source]
    decision = choose.choose(others, request, policy)
    found = [candidate.host for candidate in decision.ranked]
    if wish.target in found or (wish.overcommit and wish.target not in unheard):
        found = [wish.target, *(host for host in found if host != wish.target)]
    if not found:
        decision.rejected.update((host, ("down", why)) for host, why in unheard.items())
        reasons = decision.reasons() or "there is no other host"
        raise errors.Refused(f"no host can take {name} from {source}: {reasons}")
    terms = {host.name: account.terms(host, policy) for host in others}
    return Targets(found, terms)


@dataclass(frozen=True)
class Wish:
    """Where a guest shall go. target: the host, if one is named. others: where that one refuses,
    another will do. overcommit: there also where it has no room, or is not what the guest was made
    for."""

    target: str | None = None
    others: bool = False
    overcommit: bool = False


def check(fleet, policy, name, target, options=None):
    """(source, target, what ``virt.migratable`` says of the guest). Changes nothing."""
    options, wish = wished(target, options)
    seen, source = _look(fleet, name, target)
    if source == target:
        return source, target, None
    why = _closed(seen, target)
    if why:
        return source, target, {"migratable": False, "reasons": [why]}
    try:
        found = targets(fleet, policy, name, source, wish)
    except errors.Refused as exc:
        if not target:
            raise
        reasons = _all_reasons(fleet, seen, source, {**options, "vm_": name}, target, exc)
        return source, target, {"migratable": False, "reasons": reasons}
    refusals = {}
    for host in found.names:
        asked = {"vm_": name, "target": host, **_terms(seen, found, host), **options}
        answer = _examined(fleet, seen, source, asked)
        if answer["migratable"] or not _next_may_take(wish, answer):
            return source, host, answer
        refusals[host] = "; ".join(answer["reasons"])
    why = "; ".join(f"{host}: {reason}" for host, reason in refusals.items())
    return source, found.names[0], {"migratable": False, "reasons": [why]}


def wished(target, options, others=False):
    """(the options for the source's ``virt.migrate``, the Wish)."""
    options = dict(options or {})
    overcommit = options.get("overcommit", False)
    if not isinstance(overcommit, bool):
        raise errors.InvalidInput(f"overcommit {overcommit!r} is not True or False")
    if overcommit and not target:
        raise errors.InvalidInput("overcommit=True needs the host: where to shall it go?")
    return options, Wish(target or None, others or not target, overcommit)


def _next_may_take(wish, answer):
    """Whether it is this target that does not take the guest, and another may."""
    return wish.others and not answer.get("standing")


def examine(fleet, name, target=None):
    """What ``virt.migratable`` says of the guest, with why the target takes none. Without a
    target of the guest alone."""
    seen, source = _look(fleet, name, target)
    return _examined(fleet, seen, source, {"vm_": name, "target": target})


def verdict(name, target, found):
    """What ``virt.migratable`` found, as a sentence."""
    where = f" to {target}" if target else ""
    if not found["migratable"]:
        return f"{name} cannot be moved{where}: " + "; ".join(found["reasons"])
    parts = [f"{name} can be moved{where}"]
    if found.get("disks"):
        parts.append("disks: " + ", ".join(f"{disk} {how}" for disk, how in found["disks"].items()))
    if found.get("certificates"):
        first = min(found["certificates"], key=lambda entry: entry["until"])
        parts.append(f"certificates hold until {first['until'][:10]} ({first['host']})")
    return "; ".join(parts)


def _look(fleet, name, target):
    """(Census, the guest's host)."""
    fleet.hosts(target or None)
    seen = census(fleet)
    return seen, seen.host_of(names.guest(str(name)))


def _examined(fleet, seen, source, asked):
    target = asked["target"]
    asked = {**_told(seen, target), **asked}
    found = fleet.one(source, "virt.migratable", asked, long=True)
    why = _closed(seen, target)
    if why:
        found.update(migratable=False, reasons=[why, *found["reasons"]])
    return found


def _all_reasons(fleet, seen, source, asked, target, refusal):
    """Why a named target does not take the guest: what placement says, and what both hosts say."""
    try:
        more = _examined(fleet, seen, source, {**asked, "target": target})["reasons"]
    except errors.VirtError as exc:
        more = [exc.text]
    return [refusal.words, *more]


def _told(seen, host):
    """What a target has said of itself that its libvirt does not tell the source."""
    about = seen.hosts.get(host, {})
    words = ("ratios", "limits", "certificates", "address")
    return {key: about[key] for key in words if about.get(key)}


def _terms(seen, found, host):
    """The same, with the policy by which all hosts count."""
    return {**_told(seen, host), "placement": found.terms[host]}


def _closed(seen, host):
    """Why a host takes no guests at all: a sentence, or None."""
    if host in seen.unheard:
        return f"{host}: {seen.unheard[host]}"
    reason = seen.hosts.get(host, {}).get("maintenance")
    return f"{host} is in maintenance: {reason}" if reason else None


class _Migration:
    def __init__(self, fleet, policy, name, wish, report, options):
        self.fleet, self.policy = fleet, policy
        self.name, self.wish, self.report, self.options = name, wish, report, options
        self.target = wish.target

    def run(self):
        seen = census(self.fleet)
        if self.name in seen.unfinished:
            earlier = seen.unfinished[self.name]
            ended = self._end_earlier(earlier)
            seen = census(self.fleet)
            source = seen.host_of(self.name)
            KeyStore(self.fleet.opts).moved(self.name, earlier, source)
            if ended.get("outcome") == MOVED and self.target in (None, "", source):
                return self._answer(_ended(self.name, earlier, source), _changes(earlier, source))
        source = seen.host_of(self.name)
        if seen.leavings.get(self.name):
            self._take_away()
        if source == self.target:
            return self._answer(f"{self.name} is on {source} already", {})
        if not self.wish.others:
            self._takes_guests(seen)
        target, done = self._move_to_one(seen, source)
        KeyStore(self.fleet.opts).moved(self.name, source, target)
        done = self._cleaned(source, done)
        return self._answer(
            _sentence(self.name, source, target, done), _changes(source, target), done
        )

    def _move_to_one(self, seen, source):
        """(the host that has taken it, what its old host answered): the first that does."""
        found = self._targets(seen, source)
        refusals = []
        for target in found.names:
            with slots.taken(
                self.fleet.opts, (source, target), self._wait, f"virt.migrate of {self.name}"
            ):
                self.report.step("target", f"{self.name}: moving it from {source} to {target}")
                try:
                    return target, self._move(source, target, _terms(seen, found, target))
                except errors.Refused as exc:
                    refusals.append(f"{target}: {exc.words}")
                    self.report.step("refused", f"{self.name}: {refusals[-1]}", host=target)
        raise errors.Refused(f"no host took {self.name} from {source}: {'; '.join(refusals)}")

    def _targets(self, seen, source):
        try:
            return targets(self.fleet, self.policy, self.name, source, self.wish)
        except errors.Refused as exc:
            if self.wish.others:
                raise
            asked = {**self.options, "vm_": self.name}
            reasons = _all_reasons(self.fleet, seen, source, asked, self.target, exc)
            raise errors.Refused("; ".join(reasons)) from exc

    def _answer(self, comment, changes, done=None):
        self.fleet.tell(f"{self.report.tag}/done", {"guest": self.name, "message": comment})
        found = {"result": True, "comment": comment, "changes": changes}
        return {self.name: {**found, "migration": done} if done else found}

    def _end_earlier(self, host):
        """A migration that was killed half way is ended first."""
        self.report.step(
            "recover", f"{self.name}: ending a migration that was broken off on {host}"
        )
        return self.fleet.one(host, "virt.migrate_recover", {"vm_": self.name}, long=True)

    def _take_away(self):
        """What earlier attempts have left: it would be in the way."""
        *_, left = leavings.everywhere(self.fleet, self.name)
        for host, why in left.items():
            self.report.step("left", f"{self.name}: on {host} {why}", host=host)

    def _cleaned(self, source, done):
        """What the source did, with what it could not delete alone: other hosts are asked now."""
        if not done.get("kept"):
            return done
        try:
            gone, stay = leavings.clean(self.fleet, source, self.name)
        except errors.VirtError:
            return done
        kept = {path: why for path, why in done["kept"].items() if path not in gone}
        return {**done, "deleted": [*done.get("deleted", []), *gone], "kept": {**kept, **stay}}

    def _wait(self, why):
        self.report.step("wait", f"{self.name} waits: {why}")

    def _takes_guests(self, seen):
        why = _closed(seen, self.target)
        if why:
            kind = errors.ConnectionFailed if self.target in seen.unheard else errors.Refused
            raise kind(f"{self.name} stays where it is: {why}")

    def _move(self, source, target, told):
        asked = {**told, **self.options, "vm_": self.name, "target": target}
        watch = (f"salt/virt/migrate/{self.name}/", self._watch)
        answers = self.fleet.gather(
            [source], "virt.migrate", asked, timeout_s=SILENT_S, long=True, watch=watch
        )
        answer = answers[source]
        if not answer.ok and answer.kind != "failed":
            raise errors.ConnectionFailed(self._lost(source, answer))
        done = self._done(answer, target)
        if done.get("outcome") != MOVED:
            raise errors.OperationFailed(f"{source} answered {done!r} for {self.name}")
        if not done.get("transport"):  # an earlier attempt was ended, perhaps to another host
            now = census(self.fleet).host_of(self.name)
            if now != target:
                raise errors.OperationFailed(f"{_ended(self.name, source, now)}, not on {target}")
        return done

    def _done(self, answer, target):
        """What the source says that it did. Raises what it says of its failure, when the target was
        cleaned or with why not; who refuses has begun nothing there."""
        try:
            return answer.get()
        except errors.Refused:
            raise
        except errors.OperationFailed as exc:
            more = leavings.after_failure(self.fleet, target, self.name)
            raise errors.OperationFailed(f"{exc}; {more}" if more else exc.text) from exc

    def _watch(self, _tag, event):
        text = event.get("text")
        if text:
            self.report.show(f"{self.name}: {text}")
        elif event.get("percent") is not None:
            self.report.progress(event["percent"], f"{self.name}: {_progress(event)}")

    def _lost(self, source, answer):
        """The source did not come back: where is the guest now?"""
        places = census(self.fleet).guests.get(self.name, {})
        known = ", ".join(f"{state} on {host}" for host, state in sorted(places.items()))
        return (
            f"{source}: {answer.error}; {self.name} is {known or 'on no host that answers'}; "
            f"call virt.migrate again to end it"
        )


def _ended(name, source, target):
    return f"{name}: its earlier migration from {source} was ended: it is on {target}"


def _changes(source, target):
    return {"host": {"old": source, "new": target}}


def _progress(event):
    parts = [f"{event['percent']} %"]
    if event.get("speed"):
        parts.append(f"{event['speed'] / 2**20:.0f} MiB/s")
    if event.get("dirty_rate"):
        parts.append(f"{event['dirty_rate'] / 2**20:.0f} MiB/s changing")
    parts.append(f"{event['elapsed_s']:.0f} s")
    return ", ".join(parts)


def _sentence(name, source, target, done):
    text = f"{name} was moved from {source} to {target}"
    if done.get("transport"):  # not when only an earlier attempt had to be ended
        text += f" over {done['transport']}"
    if done.get("time_ms") is not None:
        text += f" in {done['time_ms'] / 1000:.1f} s"
    if done.get("downtime_ms") is not None:
        text += f"; it stood still for {done['downtime_ms']} ms"
    left = "; ".join(
        f"{path} was left on {source}: {why}" for path, why in done.get("kept", {}).items()
    )
    return f"{text}; {left}" if left else text
