"""Moving many guests: drain a host, bring its guests back, make the cloud even."""

from dataclasses import replace

from saltvirt import errors
from saltvirt.operations import find, inventory, moves
from saltvirt.placement import choose
from saltvirt.placement import rebalance as rebalancing


def plan(hosts, source_name, policy):
    """(guest to target, guest to why it has none), biggest guest first, each simulated.

    hosts: list of facts.Host with the one to drain among them.
    """
    cloud = {host.name: host for host in hosts}
    source = cloud.pop(source_name)
    targets, homeless = {}, {}
    for guest in sorted(source.guests, key=lambda g: (-g.memory_kib, g.name)):
        decision = choose.choose(cloud.values(), rebalancing.as_request(guest, source), policy)
        if not decision.ranked:
            homeless[guest.name] = decision.reasons() or "there is no other host"
            continue
        best = cloud[decision.ranked[0].host]
        targets[guest.name] = best.name
        cloud[best.name] = replace(best, guests=(*best.guests, guest))
    return targets, homeless


def check(fleet, host, policy):
    """The plan for draining the host. Raises when the host does not answer. Changes nothing."""
    fleet.hosts(host)
    hosts, unheard = inventory.gather(fleet, fleet.hosts())
    if host in unheard:
        raise errors.ConnectionFailed(f"{host}: {unheard[host]}")
    return plan(hosts, host, policy)


def run(fleet, host, policy, migrate, report, reason="evacuated", limits=None):
    """Marks the host as in maintenance and moves every guest away. Returns moves.Outcome.

    migrate: as for moves.run. What could not be moved is in the outcome with its reason;
    the mark stays either way.
    """
    targets, homeless = check(fleet, host, policy)
    gone = (fleet.one(host, "virt.maintenance") or {}).get("guests", [])
    fleet.one(host, "virt.maintenance", {"reason": reason, "guests": gone})
    report.step("maintenance", f"{host} gets no new guests: {reason}")
    planned = [moves.Move(guest, host, target) for guest, target in targets.items()]
    outcome = moves.run(planned, migrate, report, limits)
    outcome.left.update(homeless)
    gone = sorted({*gone, *outcome.moved})
    fleet.one(host, "virt.maintenance", {"reason": reason, "guests": gone})
    return outcome


def check_restore(fleet, host):
    """The moves that would bring back what was moved away. Changes nothing.

    Guests that were purged since are forgotten, also those that are back already.
    """
    fleet.hosts(host)
    mark = fleet.one(host, "virt.maintenance")
    if mark is None:
        raise errors.InvalidInput(f"{host} is not in maintenance")
    census = find.census(fleet)
    places = {name: sorted(census.guests.get(name, {host: ""})) for name in mark["guests"]}
    return [moves.Move(name, on[0], host) for name, on in places.items() if host not in on]


def restore(fleet, host, migrate, report, limits=None):
    """Ends the maintenance and brings back what was moved away. Returns moves.Outcome.

    Those that could not be brought back stay where they are, and are named.
    """
    planned = check_restore(fleet, host)
    fleet.one(host, "virt.maintenance", {"off": True})
    return moves.run(planned, migrate, report, limits)


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
