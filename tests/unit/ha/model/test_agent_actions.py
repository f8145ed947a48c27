"""Actions of the agent of h1 on its watchdog, its guests and itself; each condition on both
sides."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import messages
from saltvirt.ha.model.agent_actions import ActionPlanner
from saltvirt.ha.model.messages import GuestStatus, HeartbeatAck
from saltvirt.ha.model.registry import BLOCKED, ERROR, IGNORED, NEW, RECOVERING, UP, HostRecord
from tests.unit.ha.model import made
from tests.unit.ha.model.made import NOW_S, POLICY, RUNS, record

OFF = GuestStatus(1, messages.OFF)
WAITED_S = NOW_S - POLICY.shutdown_wait_s
FAILOVER, MIGRATE, FREEZE = (
    replace(POLICY, shutdown_policy=policy) for policy in ("failover", "migrate", "freeze")
)


def acts(guests, lease=True, state=None, policy=POLICY, hosts=None, known=None, **sees):
    """guests: name → its record, and what libvirt has of it; None: nothing of the one or the other.
    state, known: of the AgentState and of its Registry; sees: of the AgentView."""
    records = {name: of for name, (of, _) in guests.items() if of}
    there = {name: has for name, (_, has) in guests.items() if has}
    registry = made.registry(records, hosts, **(known or {}))
    agent = made.agent({"registry": registry}, **(state or {}))
    return ActionPlanner(
        agent, made.agent_sees(guests=there, **sees), policy, lease, NOW_S
    ).actions()


def told(actions):
    """Of each action what it is, of which guest, and why."""
    return [(one.kind, one.guest, one.reason) for one in actions]


def kinds(actions):
    return [one.kind for one in actions]


def knows(seq, host="h2"):
    """A peer has heard that beat of h1."""
    return made.beat(host, acks={"h1": HeartbeatAck(1, seq)})


MINE = {"web1": (record(), RUNS)}
# a host that others took over from: its guest is another's
LOST = {"web1": (record("h2"), RUNS)}
TO_START = {"web1": (record(), None)}


# -- a host that is given up, or cut off -----------------------------------------------------------


THREE = {
    "web1": (record(), RUNS), "web2": (record(), GuestStatus(1, messages.STARTING)),
    "db1": (record(), GuestStatus(1, messages.CRASHED)),
}  # fmt: skip
GIVEN_UP = {"h1": HostRecord(UP, boot=2, dead_before=2)}


def test_a_host_that_was_given_up_kills_what_is_alive_and_does_nothing_else():
    why = "this host was given up"
    done = acts(THREE, hosts=GIVEN_UP, works=True, watchdog=True)
    assert told(done) == [("kill", "web1", why), ("kill", "web2", why)]


def test_a_host_that_was_given_up_begins_anew_when_nothing_is_alive():
    done = acts({"web1": (record(), OFF)}, hosts=GIVEN_UP, works=True)
    assert told(done) == [("renew", "", "none of its guests is running")]


def test_a_host_whose_earlier_boots_are_gone_works_on():
    done = acts(MINE, hosts={"h1": HostRecord(UP, boot=1, dead_before=1)}, works=True)
    assert kinds(done) == ["feed"]


def test_a_host_that_is_cut_off_kills_its_guests_when_its_watchdog_broke_unseen():
    done = acts(THREE, lease=False, state={"believed": True}, watchdog=True)
    why = "this host is disconnected, and its watchdog does not work"
    assert told(done) == [("kill", "web1", why), ("kill", "web2", why)]


@pytest.mark.parametrize(
    "lease, believed, works", [(True, True, False), (False, False, False), (False, True, True)]
)
def test_else_nothing_is_killed(lease, believed, works):
    done = acts(THREE, lease, {"believed": believed}, works=works)
    assert "kill" not in kinds(done)


# -- its watchdog ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "guests, watchdog, lease, armed",
    [(MINE, True, True, True), (TO_START, True, True, True), ({}, True, True, False),
     (MINE, False, True, False), (MINE, True, False, False)],
)  # fmt: skip
def test_a_watchdog_is_armed_where_guests_run_or_are_to(guests, watchdog, lease, armed):
    why = "guests of high availability run here or are to be started here"
    done = told(acts(guests, lease, watchdog=watchdog))
    assert (("arm", "", why) in done) is armed


OVER_STATE = {"phase": messages.SHUT_DOWN}


@pytest.mark.parametrize(
    "state, sees, renews",
    [
        (OVER_STATE, {}, True),  # a shutdown that was cancelled, or a soft reboot
        (OVER_STATE, {"request": "shutdown"}, False),
        (OVER_STATE, {"guests": {"web1": made.RUNS}}, False),
        ({}, {}, False),
        ({"boot": 0}, {}, True),  # installed anew, its clock behind
        ({"boot": 0}, {"guests": {"web1": made.RUNS}}, False),
    ],
)
def test_a_host_without_guests_counts_as_started_anew_where_its_number_is_used_up(
    state, sees, renews
):
    before = replace(made.agent(), **state)
    acting = ActionPlanner(before, made.agent_sees(**sees), made.POLICY, True, made.NOW_S)
    assert (kinds(acting.actions()) == ["renew"]) is renews


def test_a_renewed_host_has_a_number_above_all_that_others_know():
    known = made.registry(None, {"h1": HostRecord("up", boot=7, dead_before=4)})
    state = replace(made.agent({"registry": known}, phase=messages.SHUT_DOWN), boot=3)
    assert (state.after_reboot().boot, state.after_reboot().phase) == (8, messages.WORKING)
    gone = made.registry(None, {"h1": HostRecord("fenced", boot=3, dead_before=9)})
    assert replace(made.agent({"registry": gone}), boot=3).after_reboot().boot == 9


@pytest.mark.parametrize("guests", [MINE, {}])
@pytest.mark.parametrize("lease, done", [(True, ["feed"]), (False, [])])
def test_it_is_fed_while_the_lease_holds_also_when_it_is_not_needed_any_more(guests, lease, done):
    assert kinds(acts(guests, lease, works=True)) == done


@pytest.mark.parametrize(
    "guests, unpledged, state, done",
    [
        ({}, 50, {}, "disarm"),
        ({}, 51, {}, "feed"),  # they heard the beat before
        ({}, 0, {}, "feed"),  # it was not said yet
        (MINE, 50, {}, "feed"),
        (MINE, 51, {"phase": messages.SHUT_DOWN}, "disarm"),
    ],
)
def test_it_is_put_at_rest_when_enough_know_or_nothing_runs_in_this_boot(
    guests, unpledged, state, done
):
    found = acts(guests, state={"unpledged": unpledged, **state}, works=True,
                 beats={"h2": knows(50)}, request="shutdown" if state else "")  # fmt: skip
    assert kinds(found)[:1] == [done]


def test_why_it_is_put_at_rest():
    found = acts({}, state={"unpledged": 50}, works=True, beats={"h2": knows(50)})
    assert told(found) == [
        ("disarm", "", "no guest needs it, and its peers know it (phase working)")
    ]


# -- guests that are its own -----------------------------------------------------------------------


def done_with(of, there, lease=True, **more):
    """What is done with web1, on a host without a watchdog: the one action, or None."""
    found = acts({"web1": (of, there)}, lease, **more)
    assert len(found) < 2
    return (found[0].kind, found[0].epoch, found[0].host, found[0].reason) if found else None


BETTER = record(reason="so", target="h2", epoch=4)
TOLD = record(reason="so", epoch=4)


@pytest.mark.parametrize(
    "of, there, done",
    [
        # it is to be down
        (record(reason="so", run=False), RUNS, ("stop", 0, "", "so")),
        (record(run=False), GuestStatus(1, messages.STARTING), None),
        (record(run=False), OFF, None),
        (record(run=False), None, None),
        # it is to run
        (TOLD, None, ("start", 4, "", "so")),
        (TOLD, OFF, ("start", 4, "", "so")),
        (record(), None, ("start", 1, "", "")),
        (TOLD, GuestStatus(4, messages.RUNNING), None),
        (TOLD, GuestStatus(5, messages.RUNNING), None),
        (TOLD, GuestStatus(4, messages.STARTING), None),
        # one that ended in that very start is the leader's
        *((TOLD, GuestStatus(3, state), ("start", 4, "", "so"))
          for state in (messages.CRASHED, messages.FAILED, messages.STOPPED)),
        *((TOLD, GuestStatus(4, state), None)
          for state in (messages.CRASHED, messages.FAILED, messages.STOPPED)),
        (TOLD, GuestStatus(5, messages.CRASHED), None),
        (TOLD, GuestStatus(4, messages.OFF), ("start", 4, "", "so")),
        # one that runs since an earlier epoch
        (TOLD, GuestStatus(3, messages.RUNNING), ("adopt", 4, "", "")),
        (replace(TOLD, anew=4), GuestStatus(3, messages.RUNNING), ("kill", 3, "", "so")),
        (replace(TOLD, anew=3), GuestStatus(2, messages.RUNNING), ("adopt", 4, "", "")),
        (replace(TOLD, anew=4), GuestStatus(4, messages.RUNNING), None),
        # it is to migrate
        (BETTER, GuestStatus(4, messages.RUNNING), ("migrate", 5, "h2", "so")),
        (BETTER, GuestStatus(4, messages.RUNNING, migrated=4), ("migrate", 5, "h2", "so")),
        (BETTER, GuestStatus(4, messages.RUNNING, migrated=5), None),
        (BETTER, GuestStatus(4, messages.STARTING), None),
    ],
)  # fmt: skip
def test_what_is_done_with_a_guest_that_is_its_own(of, there, done):
    assert done_with(of, there) == done


@pytest.mark.parametrize(
    "lease, more, starts",
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"state": {"tried": {"web1": 1}}}, False),
        (True, {"state": {"tried": {"web2": 1}}}, True),
        (True, {"state": {"phase": messages.RESTING}}, False),
        (True, {"watchdog": True}, False),  # which is to be armed first
        (True, {"watchdog": True, "works": True}, True),
        (True, {"watchdog": True, "known": {"armed": False}}, True),
    ],
)
def test_a_guest_is_started_once_while_others_know_that_its_host_lives(lease, more, starts):
    assert ("start" in kinds(acts(TO_START, lease, **more))) is starts


def test_the_watchdog_goes_first():
    guests = {"web1": (record("h2"), RUNS), "web2": (record(), None)}
    done = acts(guests, watchdog=True, works=True)
    assert [(one.kind, one.guest) for one in done] == [
        ("feed", ""), ("kill", "web1"), ("start", "web2")
    ]  # fmt: skip


# -- guests that are not ---------------------------------------------------------------------------


NOT_MINE = "it no longer belongs to this host"
ELSEWHERE = "it is on another host"
COMES = record("h2", target="h1", target_boot=1)
NOWHERE = record("", boot=0, run=False)


@pytest.mark.parametrize(
    "of, there, done",
    [
        (None, RUNS, None),  # nobody gave it to high availability
        *((record("h2", state=state), RUNS, None) for state in (NEW, IGNORED)),
        *((record("h2", state=state), RUNS, ("kill", 1, "", NOT_MINE))
          for state in (RECOVERING, BLOCKED, ERROR)),
        (record("h2"), None, None),
        (record("h2"), GuestStatus(3, messages.RUNNING), ("kill", 3, "", NOT_MINE)),
        (record(boot=2), RUNS, ("kill", 1, "", NOT_MINE)),
        (NOWHERE, RUNS, ("kill", 1, "", NOT_MINE)),
        # it is shut down where it is well, and may be
        (record("h2", gentle=True), GuestStatus(3, messages.RUNNING), ("stop", 3, "", NOT_MINE)),
        (record("h2", gentle=True), GuestStatus(3, messages.STARTING), ("kill", 3, "", NOT_MINE)),
        (record("h2", gentle=True), GuestStatus(3, messages.RUNNING, trouble=messages.PANICKED),
         ("kill", 3, "", NOT_MINE)),
        # one on its way here
        (COMES, GuestStatus(1, messages.INCOMING), None),
        (replace(COMES, target_boot=2), GuestStatus(1, messages.INCOMING), ("kill", 1, "",
        NOT_MINE)),
        (replace(COMES, target="h3"), GuestStatus(1, messages.INCOMING), ("kill", 1, "", NOT_MINE)),
        # a definition may be the only one that there is
        (record("h2"), GuestStatus(3, messages.OFF), ("drop", 3, "", ELSEWHERE)),
        (record("h2"), GuestStatus(3, messages.CRASHED), ("drop", 3, "", ELSEWHERE)),
        (NOWHERE, OFF, None),
        (record(boot=2), OFF, None),
        (COMES, OFF, None),
    ],
)  # fmt: skip
def test_what_is_done_with_a_guest_that_is_not_its_own(of, there, done):
    assert done_with(of, there) == done


@pytest.mark.parametrize(
    "last, there, told, done",
    [
        ("h2", messages.OFF, ["web1"], ("drop", 3, "", ELSEWHERE)),
        ("h2", messages.STOPPED, ["web1"], ("drop", 3, "", ELSEWHERE)),
        ("h2", messages.OFF, ["web2"], None),  # nobody else may have one
        ("h1", messages.OFF, ["web1"], None),
        ("", messages.OFF, ["web1"], None),
        ("h2", messages.RUNNING, ["web1"], ("kill", 3, "", NOT_MINE)),
    ],
)
def test_a_definition_that_is_older_than_what_was_told_since_goes(last, there, told, done):
    """The guest was elsewhere since, where a disk or a snapshot may have been added to it."""
    of = replace(NOWHERE, last=last)
    assert done_with(of, GuestStatus(3, there), definitions=told) == done


# -- the lease of a guest's disks ------------------------------------------------------------------


TAKES = record("h2", taker="h1", changed=7)
ASK = ("lease", 7, "", "the lease of its disks is requested")
LET_GO = ("kill", 0, "", "this host no longer has the lease of its disks")


@pytest.mark.parametrize(
    "of, has, done",
    [
        (TAKES, {}, ASK),
        (TAKES, {"web1": 6}, ASK),  # for an earlier question
        (TAKES, {"web2": 7}, ASK),
        (TAKES, {"web1": 7}, None),
        (record(taker="h1", run=False, changed=7), {}, ASK),
        (record(taker="h1", changed=7), {}, ("start", 1, "", "")),
        # it is kept while the guest may start here
        (record("", run=False, better="h1", changed=7), {"web1": 7}, None),
        (record(changed=7), {"web1": 7}, ("start", 1, "", "")),
        (record(run=False, changed=7), {"web1": 7}, LET_GO),
        (record("", run=False, better="h3", changed=7), {"web1": 7}, LET_GO),
        (record("h3", better="h1", changed=7), {"web1": 7}, LET_GO),
        (record("h2", changed=7), {"web1": 7}, LET_GO),
        (record("h2", changed=7), {"web2": 7}, None),
    ],
)
def test_a_lease_is_got_when_asked_for_and_kept_until_its_guest_starts(of, has, done):
    assert done_with(of, None, leases=has) == done


# -- an agent that stops ---------------------------------------------------------------------------


ENDS = [("exit", "", "its watchdog is disarmed, and its peers know it")]
# it said so in beat 60, which h2 has heard
RESTS = {"phase": messages.RESTING, "phase_seq": 60, "stop_since_s": NOW_S - 1}


def stops(guests=(), state=None, **more):
    heard = {"beats": {"h2": knows(60)}, **more}
    return acts(dict(guests), state={**RESTS, **(state or {})}, request="stop", **heard)


def test_it_ends_when_its_watchdog_is_at_rest_and_that_is_known_and_guests_run_on():
    assert told(stops(MINE)) == ENDS


@pytest.mark.parametrize(
    "more",
    [
        {"lease": False},
        {"works": True, "lease": False},
        {"state": {"believed": True}},
        {"state": {"phase_seq": 61}},
        {"state": {"phase_seq": 61, "stop_since_s": None}},
        {"state": {"phase_seq": 61, "stop_since_s": WAITED_S + 0.1}},
        # a peer acts by a later registry, in which a guest here may be another's
        {"beats": {"h2": knows(60), "h3": made.beat("h3", applied=6)}},
        {"stored": {"h3": made.beat("h3", applied=6)}},
        {"beats": {"h2": knows(60), "h3": made.beat("h3", applied=4)}, "known": {"version": 4}},
    ],
)
def test_it_does_not_end_before(more):
    assert stops(**more) == []


def test_it_does_not_end_while_its_watchdog_works():
    assert kinds(stops(works=True)) == ["feed"]


@pytest.mark.parametrize(
    "more",
    [{"beats": {"h2": knows(60), "h3": made.beat("h3", applied=4)}},
     {"stored": {"h3": made.beat("h3", applied=5)}},
     {"beats": {}, "known": {"version": 0}, "state": {"stop_since_s": WAITED_S}},
     {"state": {"phase_seq": 61, "stop_since_s": WAITED_S}}],
)  # fmt: skip
def test_it_waits_for_nobody_who_is_behind_and_not_without_end(more):
    assert told(stops(**more)) == ENDS


@pytest.mark.parametrize("gentle, kind", [(False, "kill"), (True, "stop")])
def test_what_lives_elsewhere_is_killed_before_it_ends_and_nothing_else_is_done(gentle, kind):
    guests = {
        "web1": (record("h2", gentle=gentle), RUNS), "web2": (record("h2"), OFF),
        "db1": (record(epoch=2), RUNS),
    }  # fmt: skip
    assert told(stops(guests)) == [(kind, "web1", NOT_MINE)]


# -- a host that shuts down ------------------------------------------------------------------------


LEAVES = {"phase": messages.LEAVING, "phase_seq": 60, "stop_since_s": NOW_S - 1}
IS_OVER = {**LEAVES, "phase": messages.SHUT_DOWN}
GOES = [("power off", "", "none of its guests is running")]
DOWN = {"web1": (record(), OFF), "web2": (record("h2"), OFF), "db1": (record("h2"), RUNS)}


def shuts_down(guests, state, policy=FAILOVER, **more):
    heard = {"beats": {"h2": knows(60)}, "request": "shutdown", **more}
    return acts(guests, state=state, policy=policy, **heard)


@pytest.mark.parametrize(
    "policy, asked, way",
    [(FAILOVER, "shutdown", "failover"), (FREEZE, "shutdown", "freeze"),
     (POLICY, "shutdown", "failover"), (POLICY, "reboot", "freeze")],
)  # fmt: skip
def test_its_guests_are_shut_down(policy, asked, way):
    guests = {**LOST, "web2": (record(), GuestStatus(1, messages.STARTING)), "db1": (record(), OFF)}
    why = f"the host is shutting down: {way}"
    done = shuts_down(guests, LEAVES, policy, request=asked, works=True)
    assert told(done) == [("feed", "", ""), ("stop", "web1", why), ("stop", "web2", why)]


@pytest.mark.parametrize(
    "stop_since_s, done",
    [(WAITED_S + 0.1, [("migrate", "web1", "")]),
     (WAITED_S, [("stop", "web1", "the host is shutting down: migrate")])],
)  # fmt: skip
def test_those_that_migrate_have_their_time_for_it(stop_since_s, done):
    guests = {"web1": (record(target="h2"), RUNS)}
    assert told(shuts_down(guests, {**LEAVES, "stop_since_s": stop_since_s}, MIGRATE)) == done


@pytest.mark.parametrize(
    "guests, policy, more",
    [
        ({}, FAILOVER, {}),
        (LOST, FAILOVER, {}),
        ({"web1": (record(run=False), OFF)}, FAILOVER, {}),
        ({"web1": (record(state=ERROR), OFF)}, FAILOVER, {}),
        ({"web1": (record(state=IGNORED), OFF)}, FAILOVER, {}),
        (DOWN, FREEZE, {}),
        (DOWN, FAILOVER, {"known": {"armed": False}}),
        (DOWN, FAILOVER, {"state": {**IS_OVER, "stop_since_s": WAITED_S}}),
        ({}, FAILOVER, {"state": {**IS_OVER, "phase_seq": 61, "stop_since_s": WAITED_S}}),
    ],
)
def test_it_is_switched_off_when_its_guests_were_taken_or_wait_for_it(guests, policy, more):
    assert told(shuts_down(guests, policy=policy, **{"state": IS_OVER, **more})) == GOES


@pytest.mark.parametrize(
    "guests, more, done",
    [
        # it waits until the leader took them, and drops what is another's
        (DOWN, {}, ["drop"]),
        (DOWN, {"state": {**IS_OVER, "stop_since_s": WAITED_S + 0.1}}, ["drop"]),
        ({}, {"works": True}, ["disarm"]),
        ({}, {"state": {**IS_OVER, "phase_seq": 61}}, []),
    ],
)
def test_it_is_not_switched_off_before(guests, more, done):
    assert kinds(shuts_down(guests, **{"state": IS_OVER, **more})) == done
