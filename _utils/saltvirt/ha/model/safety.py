"""The conditions that keep a guest from running twice, and a cloud from being killed: each a
function by itself, listed in ha-design.md. tests/ha/mutants.py takes away one after the
other, and the random runs must notice."""

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
    """A host feeds its watchdog, and starts a guest, only so long after it *sent* the last beat
    that the master or enough peers have acknowledged. lease_from_s: when that was."""
    return lease_from_s is not None and now_s - lease_from_s < feed_lease_s


def announced_s(
    old_s: float | None, new_s: float, acknowledged: int, members: Collection[str]
) -> float:
    """A host goes by a longer time than it announced before only when so many know of the longer
    one that whoever counts on the time must ask one of them; by a shorter one at once. old_s: the
    shortest that it announced since; None: none in this boot."""
    if old_s is None or acknowledged >= quorum.peers_needed(members):
        return new_s
    return min(old_s, new_s)


def enough_acknowledge(peers: int, members: Collection[str]) -> bool:
    """Peers are enough where they are a majority with the host itself."""
    return peers >= quorum.peers_needed(members) > 0


def may_acknowledge(vote: FenceVote | None, boot: int) -> bool:
    """A peer that has promised not to acknowledge a host keeps to it until the host has booted
    anew, or the leader releases it."""
    return vote is None or boot > vote.boot


def may_disarm(acknowledged: int, members: Collection[str], is_over: bool) -> bool:
    """A host puts its watchdog at rest when none of its guests will run in this boot, or when so
    many know of it that whoever counts on the watchdog must ask one of them."""
    return is_over or acknowledged >= quorum.peers_needed(members)


def must_kill(believed_armed: bool, works: bool, lease: bool) -> bool:
    """A host whose watchdog broke before the others knew kills its guests when it is cut off."""
    return believed_armed and not works and not lease


def is_given_up(record: HostRecord, boot: int) -> bool:
    """A host that learns that it was proven to be gone kills its guests before all else."""
    return boot < record.gone


# -- on a host: whom it obeys ----------------------------------------------------------------------


def does_not_hear(silent_s: float, policy: HaPolicy) -> bool:
    """A host counts among those who say that another one is gone, and promises to give it up, only
    if it has not heard it for so long itself."""
    return silent_s >= policy.suspect_s


def may_grant(message: LeaderMessage, term: int, leader: str) -> bool:
    """An agent grants the lead to one master in a term, and never in an older term than before."""
    return message.term > term or (message.term == term and message.master == leader)


def lead_is_over(
    message: LeaderMessage, leader: str, granted_s: float, lead_lease_s: float
) -> bool:
    """An agent grants the lead to another master only when the time for which it has granted the
    lead to the first has passed."""
    return leader in ("", message.master) or granted_s >= lead_lease_s


def may_start(record: HaGuestRecord, host: str, boot: int, lease: bool, tried: int) -> bool:
    """A host starts a guest that is its own in this boot, that can run nowhere else, while the
    others know that the host lives; and each epoch once: it may have migrated away since."""
    is_owner = record.host == host and record.boot == boot and record.run
    is_exclusive = all(location.host == host for location in record.places)
    return is_owner and is_exclusive and lease and record.epoch > tried


# -- on the master: may it act ---------------------------------------------------------------------


def leads(asked_s: float | None, now_s: float, policy: HaPolicy) -> bool:
    """A master acts only so long after it *asked* for the lead that a majority has granted."""
    return asked_s is not None and now_s - asked_s < policy.lead_s


def is_enough(hosts: Iterable[str], members: Collection[str], sole_master: bool) -> bool:
    """A majority: for the lead, for what must not be forgotten, to give up a host."""
    return quorum.voices(hosts, members, sole_master) >= quorum.majority(members, sole_master)


def may_master_acknowledge(fencing: bool, leading: bool, sole_master: bool) -> bool:
    """A master acknowledges no host that it has given up; and where there are several masters, none
    unless it leads."""
    return not fencing and (leading or sole_master)


def fences_left(host: str, fenced: Collection[str], policy: HaPolicy) -> bool:
    """Not more hosts than so many are given up in a window."""
    return host in fenced or len(fenced) < policy.max_fences


def is_at_rest(host_state: HostState) -> bool:
    """A host that has said that its guests wait for it is not taken for dead."""
    return host_state.freeze


# -- on the master: proofs -------------------------------------------------------------------------


def fence_proves(outcome: str, attempt: str, current: str) -> bool:
    """A fence agent's word is a proof if it saw the host off, after it was given up this time."""
    return outcome == "off" and messages.question(attempt) == current


def watchdog_proves(
    promised_s: float, now_s: float, host_state: HostState, boot: int, policy: HaPolicy
) -> bool:
    """The watchdog has fired: enough have promised not to acknowledge the host since promised_s,
    the last that any of them knows of it is that it was armed, and the time has passed."""
    if host_state.boot != boot or not host_state.armed:
        return False
    return now_s - promised_s >= policy.must_have_fired_s(host_state.watchdog_s, host_state.terms)


def is_on_same_terms(host_state: HostState, reference: Terms) -> bool:
    """A watchdog proves something only of a host that has announced the very times and the program
    that the leader goes by."""
    return not host_state.terms.differs(reference)


def may_believe(tellers: Collection[str], members: Collection[str]) -> bool:
    """What hosts tell of a silent one makes a proof only if a majority of all hosts tells it: one
    that lies, alone, makes none. The master's voice does not count: it has heard nothing."""
    return quorum.voices(tellers, members, False) >= quorum.majority(members, False)


def boot_proves(location: GuestLocation, boot: int) -> bool:
    """A host that has booted again runs nothing from before."""
    return boot > location.boot > 0


def is_released(record: HaGuestRecord, name: str, beat: Heartbeat) -> bool:
    """A host's own word: it acts by a registry in which the guest is no longer its own, so it will
    never start it by an older one, and the guest is not alive there."""
    status = beat.guests.get(name)
    return beat.applied >= record.changed and (status is None or status.state not in messages.ALIVE)


def is_gone(location: GuestLocation, record: HostRecord) -> bool:
    """What was proven of a host holds for the boot it was proven of, and those before."""
    return location.boot < record.gone


def is_shut_down(location: GuestLocation, host_state: HostState) -> bool:
    """A host's own word that none of its guests runs, nor will before it is started anew."""
    return host_state.boot == location.boot and host_state.phase == messages.SHUT_DOWN


def may_place(record: HaGuestRecord) -> bool:
    """A guest gets a new place only when there is none left at which it may run."""
    return not record.places


def lease_proves(record: HaGuestRecord, name: str, beat: Heartbeat) -> bool:
    """The disks' lease, which the storage gives to one host alone, was got for this question."""
    return beat.leases.get(name) == record.changed and record.taker == beat.host
