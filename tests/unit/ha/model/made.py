"""Hosts, guests, agents and masters for tests of single decisions: three hosts, one master, and a
guest web1 that runs on h1, all without faults. A test changes its subject."""

from dataclasses import replace

from saltvirt.ha.model import agent_view, host_capacity, messages, transitions
from saltvirt.ha.model.guest_case import GuestCase
from saltvirt.ha.model.messages import GuestStatus, Heartbeat, LeaderMessage, ReceivedHeartbeat
from saltvirt.ha.model.policy import HaPolicy
from saltvirt.ha.model.registry import (
    PLACED,
    UP,
    GuestLocation,
    HaGuestRecord,
    HostRecord,
    Registry,
)
from saltvirt.ha.model.view import GuestConfig, MasterState, SavedMasterState, View
from saltvirt.placement.facts import Guest, Host

HOSTS = ("h1", "h2", "h3")
POLICY = HaPolicy(feed_lease_s=8, watchdog_s=10, lead_lease_s=6, suspect_s=6, max_fences=2)
NOW_S = 1000
RUNS = GuestStatus(1, messages.RUNNING)
SIZE = Guest("web1", vcpus=1, memory_kib=1024**2)


def record(host="h1", **changes):
    """Of a guest that runs there in boot 1, by epoch 1."""
    given = {
        "state": PLACED, "epoch": 1, "host": host, "boot": 1, "run": True, "last": host,
        "locations": (GuestLocation(host, 1),),
    }  # fmt: skip
    return HaGuestRecord(**{**given, **changes})


def wanted(name="web1", host="h1", **changes):
    return GuestConfig(name, host, size=replace(SIZE, name=name), **changes)


def registry(guests=None, hosts=None, **changes):
    """hosts: those that are not up in boot 1."""
    up = {name: HostRecord(UP, boot=1) for name in HOSTS}
    given = {"term": 1, "version": 5, "members": HOSTS, "hosts": {**up, **(hosts or {})}}
    return Registry(**{**given, "guests": {} if guests is None else guests, **changes})


def beat(host="h1", at_s=NOW_S - 1, **changes):
    """One that has come."""
    given = {"boot": 1, "seq": 7, "applied": 5, "stored": 5, "stored_term": 1}
    return ReceivedHeartbeat(Heartbeat(host, **{**given, **changes}), at_s)


def call(master="m1", at_s=NOW_S - 1, **changes):
    """One that has come."""
    return messages.ReceivedMessage(LeaderMessage(master, **{"term": 1, "seq": 7, **changes}), at_s)


def seen(beats=(), **changes):
    """A master's View. beats: those that are not an idle host's."""
    arrived = {one.beat.host: one for one in (*map(beat, HOSTS), *beats)}
    given = {
        "masters": ("m1",), "members": HOSTS, "beats": arrived, "policy": POLICY,
        "placement_hosts": {name: Host(name, 8, 8 * 1024**2, types=("kvm",)) for name in HOSTS},
    }  # fmt: skip
    return View(**{**given, **changes})


def master(**changes):
    """A MasterState: it leads, and enough hosts keep its registry."""
    given = {"leading_s": NOW_S - 100, "ready": True, "committed": 5, "began_s": 0}
    return MasterState("m1", **{**given, "saved": SavedMasterState(term=1), **changes})


def case(of=None, there=RUNS, name="web1", now_s=NOW_S, **more):
    """The GuestCase of web1. of: its record. there: what its host says of it; None: nothing.
    more: wanted, registry, state, view as a whole; pledges, hosts, beats, guests, and all that a
    View has beside: parts of them.
    """
    of = record() if of is None else of
    guests = {**more.pop("guests", {}), name: of}
    known = more.pop("registry", None) or registry(guests, more.pop("hosts", None))
    told = {name: there} if there else {}
    beats = [beat(of.host, guests=told)] if of.host else []
    asked = more.pop("wanted", None) or wanted(name)
    kept = SavedMasterState(term=1, registry=known, host_states=more.pop("pledges", {}))
    state = more.pop("state", None) or master(saved=kept)
    beats += more.pop("beats", ())
    sees = more.pop("view", None)
    if sees is None:
        sees, more = seen(beats, guests={name: asked}, **more), {}
    assert not more
    return GuestCase(
        name, of, asked, known, state, sees, host_capacity.HostCapacity(sees, known, now_s), now_s
    )  # fmt: skip


def after(of):
    """The record of a GuestCase after the row that is taken, in version 9 of the registry."""
    return transitions.next_guest_row(of).apply(of, 9)


def row_name(row):
    """The name of its condition; None: there is no row."""
    return row and row.condition.__name__


def agent(saved=None, **changes):
    """The AgentState of h1 in boot 1: it works, its lease holds. kept: of a Kept; its registry is
    acted by."""
    given = {"term": 1, "leader": "m1", "pending": registry(), "registry": registry()}
    own = agent_view.SavedAgentState(**{**given, **(saved or {})})
    begun = {"seq": 100, "lease_from_s": NOW_S - 1, "granted_s": NOW_S - 1, "saved": own}
    return agent_view.AgentState("h1", 1, **{**begun, **changes})


def agent_sees(**changes):
    """An AgentView: its two peers and the master were heard a second ago."""
    given = {
        "beats": {name: beat(name) for name in HOSTS[1:]}, "messages": {"m1": call(leading=True)},
    }  # fmt: skip
    return agent_view.AgentView(**{**given, **changes})
