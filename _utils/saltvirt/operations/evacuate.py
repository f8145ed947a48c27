"""Moving many guests: drain a host, bring its guests back, make the cloud even."""

from saltvirt import errors
from saltvirt.operations import away, find, inventory, moves
from saltvirt.placement import account, choose, facts
from saltvirt.placement import rebalance as rebalancing

# a host that goes on getting guests although it is marked is not looked at for ever
LOOKS = 5


def plan(hosts, source_name, policy):
    """(guest to target, guest to why it has none), biggest guest first, each simulated.

    hosts: list of facts.Host with the one to drain among them.
    """
    cloud = {host.name: host for host in hosts}
    source = cloud.pop(source_name)
    targets, homeless = {}, {}
    for guest in sorted(source.guests, key=lambda g: (-g.memory_kib, g.name)):
        request = facts.of_guest(guest, source)
        decision = choose.choose(cloud.values(), request, policy)
        if not decision.ranked:
            homeless[guest.name] = decision.reasons() or "there is no other host"
            continue
        targets[guest.name] = decision.ranked[0].host
        cloud = account.taken(cloud, targets[guest.name], request, guest)
    return targets, homeless


def check(fleet, host, policy):
    """The plan for draining the host. Raises when the host does not answer. Changes nothing."""
    fleet.hosts(host)
    hosts, unheard = inventory.gather(fleet, fleet.hosts())
    if host in unheard:
        raise errors.ConnectionFailed(f"{host}: {unheard[host]}")
    return plan(hosts, host, policy)


def run(fleet, host, policy, migrate, report, reason="evacuated", limits=(1, 1)):
    """Marks the host as in maintenance and moves every guest away. Returns moves.Outcome.

    migrate: as for moves.run. The mark comes first, and the host is looked at again until nothing
    new is on it. What could not be moved is in the outcome with its reason; the mark stays either
    way. It names the guests that leave before they do, as does this master's own list, so that
    ``restore`` knows them whatever becomes of this process.
    """
    reason = str(reason or "").strip() or "evacuated"
    fleet.hosts(host)
    gone = {*(fleet.one(host, "virt.maintenance") or {}).get("guests", [])}
    ours = away.of(fleet.opts, host)
    _mark(fleet, host, reason, gone)
    report.step("maintenance", f"{host} gets no new guests: {reason}")
    outcome = moves.Outcome()
    for _ in range(LOOKS):
        targets, homeless = _again(fleet, host, policy, outcome)
        planned = [moves.Move(g, host, t) for g, t in targets.items() if g not in outcome.left]
        if not planned:
            break
        leaving = {move.guest for move in planned}
        away.keep(fleet.opts, host, ours | set(outcome.moved) | leaving)
        _mark(fleet, host, reason, gone | set(outcome.moved) | leaving)
        step = moves.run(planned, migrate, report, limits)
        outcome.moved.update(step.moved)
        outcome.left.update(step.left)
    else:
        targets, homeless = _again(fleet, host, policy, outcome)
        came = f"it came to {host} while it was drained: evacuate it again"
        homeless.update(dict.fromkeys(targets, came))
    outcome.left = {**homeless, **outcome.left}
    away.keep(fleet.opts, host, ours | set(outcome.moved))
    _mark(fleet, host, reason, gone | set(outcome.moved))
    return outcome


def _mark(fleet, host, reason, guests):
    """Raises OperationFailed when the host has no such mark then."""
    told = {"reason": reason, "guests": sorted(guests)}
    if fleet.one(host, "virt.maintenance", told) != told:
        raise errors.OperationFailed(f"{host} did not keep the mark of its maintenance")


def _again(fleet, host, policy, outcome):
    """The plan for what is on the host now. Once something was moved, silence is no failure of
    that: it is in the outcome."""
    try:
        return check(fleet, host, policy)
    except errors.ConnectionFailed as exc:
        if not outcome.moved and not outcome.left:
            raise
        return {}, {host: f"what is left on it is not known: {exc.text}"}


def check_restore(fleet, host):
    """(the moves that would bring back what was moved away, guest to why it stays where it is).
    Changes nothing.

    Guests that were purged since are forgotten, also those that are back already: but only when
    every host was heard. What the host names and this master did not move away stays.
    """
    fleet.hosts(host)
    mark = fleet.one(host, "virt.maintenance")
    if mark is None:
        raise errors.InvalidInput(f"{host} is not in maintenance")
    census = find.census(fleet)
    planned, unknown, ours = [], {}, away.of(fleet.opts, host)
    for name in mark["guests"]:
        places = sorted(census.guests.get(name, {}))
        if host in places or not (places or census.unheard):
            continue
        if name not in ours:
            unknown[name] = (
                f"only {host} says that it had it, this master did not move it away from there"
            )
        elif places:
            planned.append(moves.Move(name, places[0], host))
        else:
            unknown[name] = f"it is on no host that answers ({census.unheard_text()})"
    return planned, unknown


def restore(fleet, host, migrate, report, limits=(1, 1)):
    """Ends the maintenance and brings back what was moved away. Returns moves.Outcome.

    Those that could not be brought back stay where they are, and are named; the host keeps their
    names, so that it can be called again.
    """
    planned, unknown = check_restore(fleet, host)
    _open(fleet, host, {move.guest for move in planned} | set(unknown))
    outcome = moves.run(planned, migrate, report, limits)
    outcome.left.update(unknown)
    _open(fleet, host, outcome.left)
    away.keep(fleet.opts, host, away.of(fleet.opts, host) & set(outcome.left))
    return outcome


def _open(fleet, host, away):
    """The host takes guests again; it keeps the names of those that are still away."""
    fleet.one(host, "virt.maintenance", {"off": True, "guests": sorted(away)})


def rebalance(fleet, policy, planned, migrate, report):
    """Makes the planned moves one by one. Returns moves.Outcome.

    After each the hosts are asked again; when the cloud is not as the plan predicted (someone
    else deployed or moved something) the rest is left, with that reason.
    """
    outcome = moves.Outcome()
    for number, move in enumerate(planned):
        step = moves.run([move], migrate, report)
        outcome.moved.update(step.moved)
        outcome.left.update(step.left)
        now = rebalancing.score(_cloud(fleet), policy)
        if step.left or abs(now - move.after) > rebalancing.LEAST_GAIN:
            why = f"the cloud's score is {now:.3f}, not {move.after:.3f} as planned; plan again"
            outcome.left.update({m.guest: why for m in planned[number + 1 :]})
            break
    return outcome


def _cloud(fleet):
    hosts, _ = inventory.gather(fleet)
    return [host for host in hosts if not host.maintenance]
