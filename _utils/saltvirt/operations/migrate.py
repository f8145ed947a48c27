"""Move a guest, from the master: find it, choose the target, let its host do it.

Its host confirms the move with both libvirts before it reports it: nobody is asked again.
"""

from dataclasses import dataclass, field

from saltvirt import errors, names
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import find, inventory, lock, slots
from saltvirt.placement import choose, rebalance

MOVED = "moved"
# the host itself notices a dead peer after 20 s and libvirt after 30: be more patient
SILENT_S = 60


def run(fleet, policy, name, target, report, options=None):
    """Moves the guest; the runner's answer: {name: {result, comment, changes, …}}.

    policy: placement's, for when no target is given. report: a report.Report. options: dict
    of arguments for the host's ``virt.migrate``.
    Raises NotFound, InvalidInput, OperationFailed, ConnectionFailed; the message says where
    the guest is.
    """
    name = names.guest(str(name))
    fleet.hosts(target or None)  # an unknown target is said before anything is asked
    with lock.guest(fleet.opts, name, "virt.migrate"):
        try:
            return _Migration(fleet, policy, name, target, report, options or {}).run()
        except errors.VirtError as exc:
            report.failed(exc)
            raise


@dataclass(frozen=True)
class Census(find.Census):
    """unfinished: name to the host that has a broken-off migration of it. hosts: id to what
    ``virt.migrate_census`` said of the host itself."""

    unfinished: dict = field(default_factory=dict)
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
    return found


def abort(fleet, name):
    """Ends a running migration; the host that the guest stays on.

    While it moves the guest is on two hosts, and only its old one knows of a migration.
    """
    name = names.guest(str(name))
    unfinished = census(fleet).unfinished
    if name not in unfinished:
        raise errors.OperationFailed(f"no host has a migration of {name} under way")
    fleet.one(unfinished[name], "virt.migrate_abort", {"vm_": name}, long=True)
    return unfinished[name]


def choose_target(fleet, policy, name, source):
    """The best host for the guest that is not the source. Raises Refused with each's reason."""
    hosts, unheard = inventory.gather(fleet)
    here = next((host for host in hosts if host.name == source), None)
    if here is None:
        raise errors.ConnectionFailed(f"{source}: {unheard.get(source, 'it did not answer')}")
    guest = next((guest for guest in here.guests if guest.name == name), None)
    if guest is None:
        raise errors.NotFound(f"{name} is not on {source} any more: call it again")
    others = [host for host in hosts if host.name != source]
    decision = choose.choose(others, rebalance.as_request(guest, here), policy)
    if decision.ranked:
        return decision.ranked[0].host
    decision.rejected.update((host, ("down", why)) for host, why in unheard.items())
    reasons = decision.reasons() or "there is no other host"
    raise errors.Refused(f"no host can take {name} from {source}: {reasons}")


def check(fleet, policy, name, target, options=None):
    """(source, target, what ``virt.migratable`` says of the guest). Changes nothing."""
    seen, source = _look(fleet, name, target)
    if source == target:
        return source, target, None
    target = target or choose_target(fleet, policy, name, source)
    return (
        source,
        target,
        _examined(fleet, seen, source, {"vm_": name, "target": target, **(options or {})}),
    )


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
    found = fleet.one(source, "virt.migratable", {**asked, **_told(seen, target)}, long=True)
    why = _closed(seen, target)
    if why:
        found.update(migratable=False, reasons=[why, *found["reasons"]])
    return found


def _told(seen, host):
    """What a target has said of itself that its libvirt does not tell the source."""
    about = seen.hosts.get(host, {})
    return {key: about[key] for key in ("ratios", "certificates", "address") if about.get(key)}


def _closed(seen, host):
    """Why a host takes no guests at all: a sentence, or None."""
    if host in seen.unheard:
        return f"{host}: {seen.unheard[host]}"
    reason = seen.hosts.get(host, {}).get("maintenance")
    return f"{host} is in maintenance: {reason}" if reason else None


class _Migration:
    def __init__(self, fleet, policy, name, target, report, options):
        self.fleet, self.policy = fleet, policy
        self.name, self.target, self.report, self.options = name, target, report, options

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
        if source == self.target:
            return self._answer(f"{self.name} is on {source} already", {})
        self._takes_guests(seen)
        target = self.target or choose_target(self.fleet, self.policy, self.name, source)
        with slots.taken(
            self.fleet.opts, (source, target), self._wait, f"virt.migrate of {self.name}"
        ):
            self.report.step("target", f"{self.name}: moving it from {source} to {target}")
            done = self._move(source, target, _told(seen, target))
        KeyStore(self.fleet.opts).moved(self.name, source, target)
        return self._answer(
            _sentence(self.name, source, target, done), _changes(source, target), done
        )

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
        done = answer.get()
        if done.get("outcome") != MOVED:
            raise errors.OperationFailed(f"{source} answered {done!r} for {self.name}")
        if not done.get("transport"):  # an earlier attempt was ended, perhaps to another host
            now = census(self.fleet).host_of(self.name)
            if now != target:
                raise errors.OperationFailed(f"{_ended(self.name, source, now)}, not on {target}")
        return done

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
    left = "; ".join(f"{path} was left on {source}: {why}" for path, why in done["kept"].items())
    return f"{text}; {left}" if left else text
