"""The conditions that keep a guest from running twice, and a cloud from being killed. Each is a
function of its own, and ha-design.md lists them. tests/ha/mutants.py disables one after the other,
and the random runs must detect it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.ha.model import messages, quorum

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from saltvirt.ha.model.messages import FenceVote, Heartbeat, HostState, LeaderMessage
    from saltvirt.ha.model.policy import HaPolicy, Terms
    from saltvirt.ha.model.registry import GuestLocation, HaGuestRecord, HostRecord


# -- on a host: its watchdog -----------------------------------------------------------------------


def lease_holds(lease_from_s: float | None, now_s: float, feed_lease_s: float) -> bool:
    """A host feeds its watchdog, and starts a guest, only within feed_lease_s after it *sent* the
    last heartbeat that the master or enough peers have acknowledged. lease_from_s: when it sent
    that heartbeat."""
    return lease_from_s is not None and now_s - lease_from_s < feed_lease_s


def announced_s(
    old_s: float | None, new_s: float, acknowledged: int, members: Collection[str]
) -> float:
    """A host uses a longer time than it announced before only after enough peers know the longer
    time, so that each machine that relies on the time must ask one of these peers. The host uses a
    shorter time at once. old_s: the shortest time that the host has announced since; None: none in
    this boot."""
    if old_s is None or acknowledged >= quorum.peers_needed(members):
        return new_s
    return min(old_s, new_s)


def enough_acknowledge(peers: int, members: Collection[str]) -> bool:
    """Peers are enough if they form a majority together with the host itself."""
    return peers >= quorum.peers_needed(members) > 0


def may_acknowledge(vote: FenceVote | None, boot: int) -> bool:
    """A peer that has voted to give up a host does not acknowledge that host until it has booted
    again, or the leader cancels the vote."""
    return vote is None or boot > vote.boot


def may_disarm(acknowledged: int, members: Collection[str], is_over: bool) -> bool:
    """A host disarms its watchdog if none of its guests will run in this boot, or if enough peers
    know that it disarms, so that each machine that relies on the watchdog must ask one of these
    peers."""
    return is_over or acknowledged >= quorum.peers_needed(members)


def must_kill(believed_armed: bool, works: bool, lease: bool) -> bool:
    """A host that is cut off kills its guests if its watchdog does not work while its peers still
    believe that the watchdog is armed."""
    return believed_armed and not works and not lease


def is_given_up(record: HostRecord, boot: int) -> bool:
    """A host that learns that it was given up, with a proof, kills its guests before it does
    anything else."""
    return boot < record.dead_before


# -- on a host: its leader -------------------------------------------------------------------------


def does_not_hear(silent_s: float, policy: HaPolicy) -> bool:
    """A host counts among those that report another host as silent, and votes to give it up, only
    if it has not heard the other host itself for suspect_s."""
    return silent_s >= policy.suspect_s


def may_grant(message: LeaderMessage, term: int, leader: str) -> bool:
    """An agent grants the lead to only one master in a term, and never in an older term than
    before."""
    return message.term > term or (message.term == term and message.master == leader)


def lead_is_over(
    message: LeaderMessage, leader: str, granted_s: float, lead_lease_s: float
) -> bool:
    """An agent grants the lead to another master only after the time for which it has granted the
    lead to the first master has passed."""
    return leader in ("", message.master) or granted_s >= lead_lease_s


def may_start(record: HaGuestRecord, host: str, boot: int, lease: bool, tried: int) -> bool:
    """A host starts a guest only if the guest belongs to it in this boot and can run nowhere else,
    and while the others know that the host is alive. It starts each epoch only once, because the
    guest may have migrated away since."""
    is_owner = record.host == host and record.boot == boot and record.run
    is_exclusive = all(location.host == host for location in record.locations)
    return is_owner and is_exclusive and lease and record.epoch > tried


# -- on the master: may it act ---------------------------------------------------------------------


def leads(asked_s: float | None, now_s: float, policy: HaPolicy) -> bool:
    """A master acts only within lead_s after it *asked* for the lead that a majority has
    granted."""
    return asked_s is not None and now_s - asked_s < policy.lead_s


def is_enough(hosts: Iterable[str], members: Collection[str], sole_master: bool) -> bool:
    """A majority is needed for the lead, for storing what must not be forgotten, and for giving up
    a host."""
    return quorum.voices(hosts, members, sole_master) >= quorum.majority(members, sole_master)


def may_master_acknowledge(fencing: bool, leading: bool, sole_master: bool) -> bool:
    """A master acknowledges no host that it has given up. If several masters exist, a master
    acknowledges hosts only while it leads."""
    return not fencing and (leading or sole_master)


def fences_left(host: str, fenced: Collection[str], policy: HaPolicy) -> bool:
    """No more than max_fences hosts are given up in a window."""
    return host in fenced or len(fenced) < policy.max_fences


def is_at_rest(host_state: HostState) -> bool:
    """A host that has reported that its guests wait for it is not considered dead."""
    return host_state.freeze


# -- on the master: proofs -------------------------------------------------------------------------


def fence_proves(outcome: str, attempt: str, current: str) -> bool:
    """The report of a fence agent is a proof if the agent saw the host off after the present
    decision to give the host up."""
    return outcome == "off" and messages.question(attempt) == current


def watchdog_proves(
    voted_s: float, now_s: float, host_state: HostState, boot: int, policy: HaPolicy
) -> bool:
    """The watchdog has fired if enough hosts have voted since voted_s to give up the host, the last
    state that any of them knows of the host is that its watchdog is armed, and the time has
    passed."""
    if host_state.boot != boot or not host_state.armed:
        return False
    return now_s - voted_s >= policy.must_have_fired_s(host_state.watchdog_s, host_state.terms)


def is_on_same_terms(host_state: HostState, reference: Terms) -> bool:
    """A watchdog proves something only about a host that has announced exactly the times and the
    program that the leader uses."""
    return not host_state.terms.differs(reference)


def may_believe(reporters: Collection[str], members: Collection[str]) -> bool:
    """What hosts report of a silent host is a proof only if a majority of all hosts reports it: a
    single host that lies establishes no proof. The master's voice does not count, because the
    master has heard nothing."""
    return quorum.voices(reporters, members, False) >= quorum.majority(members, False)


def boot_proves(location: GuestLocation, boot: int) -> bool:
    """A host that has booted again runs nothing from before."""
    return boot > location.boot > 0


def is_released(record: HaGuestRecord, name: str, beat: Heartbeat) -> bool:
    """The host's own report is a proof if the host acts on a registry in which the guest no longer
    belongs to it, so that it will never start the guest from an older registry, and if the guest is
    not alive on the host."""
    status = beat.guests.get(name)
    return beat.applied >= record.changed and (status is None or status.state not in messages.ALIVE)


def is_gone(location: GuestLocation, record: HostRecord) -> bool:
    """A proof about a host is valid for the boot that it is about, and for earlier ones."""
    return location.boot < record.dead_before


def is_shut_down(location: GuestLocation, host_state: HostState) -> bool:
    """The host's own report is a proof if it says that none of its guests runs, or will run before
    the host starts again."""
    return host_state.boot == location.boot and host_state.phase == messages.SHUT_DOWN


def may_place(record: HaGuestRecord) -> bool:
    """A guest gets a new host only if no place is left where the guest may run."""
    return not record.locations


def lease_proves(record: HaGuestRecord, name: str, beat: Heartbeat) -> bool:
    """The lease of the guest's disks, which the storage gives to only one host, is a proof if the
    host got it for this question."""
    return beat.leases.get(name) == record.changed and record.taker == beat.host
