"""The leader's belief about a silent host: its own report, and later reports of others."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import host_states
from saltvirt.ha.model.messages import SHUT_DOWN, WORKING, HostState
from saltvirt.ha.model.policy import Terms
from saltvirt.ha.model.registry import FENCING, UP, HostRecord
from saltvirt.ha.model.view import SavedMasterState
from tests.unit.ha.model import made
from tests.unit.ha.model.made import POLICY

TERMS = POLICY.terms("")
OWN = HostState(1, 5, False, 10, WORKING, False, TERMS)
ARMED = replace(OWN, seq=9, armed=True)
# what one that lies would tell: the shortest watchdog, and that nothing runs there any more
LIE = HostState(1, 2**40, True, 0, SHUT_DOWN, False, TERMS)


def believed(told, own=OWN, state=FENCING, members=made.HOSTS):
    known = made.registry(None, {"h1": HostRecord(state, boot=1)}, members=members)
    kept = SavedMasterState(term=1, registry=known, host_states={"h1": own} if own else {})
    beats = [made.beat(peer, host_states={"h1": one}) for peer, one in told.items()]
    return host_states.believed_state("h1", made.master(saved=kept), made.seen(beats))


def test_one_that_lies_makes_no_proof_of_a_silent_host():
    found = believed({"h3": LIE})
    assert not found.armed and found.watchdog_s == 10 and found.phase == WORKING


@pytest.mark.parametrize("own", [None, replace(OWN, boot=0), OWN])
def test_with_the_same_word_of_a_majority_it_is_believed(own):
    found = believed({"h2": ARMED, "h3": replace(ARMED, seq=8)}, own)
    assert found.armed and found.terms == TERMS


@pytest.mark.parametrize("own", [None, replace(OWN, boot=0)])
def test_of_a_host_that_the_master_never_heard_one_word_is_none(own):
    assert not believed({"h3": LIE}, own).armed


def test_with_two_hosts_the_voice_of_the_master_does_not_count():
    assert not believed({"h2": LIE}, members=("h1", "h2")).armed


@pytest.mark.parametrize("change", [
    {"armed": False}, {"watchdog_s": 60}, {"terms": Terms()}, {"freeze": True},
    {"terms": replace(TERMS, program="another")},
])  # fmt: skip
def test_one_later_word_is_enough_to_take_a_proof_away(change):
    """Its watchdog may be at rest, or slower, and that one may be the only one who knows."""
    own, weaker = replace(ARMED, seq=5), replace(ARMED, seq=9, **change)
    for told in ({"h2": weaker}, {"h2": weaker, "h3": ARMED}, {"h2": ARMED, "h3": weaker}):
        found = believed(told, own)
        seen = (found.armed, found.watchdog_s, found.terms, found.freeze)
        assert seen != (True, 10, TERMS, False), told


@pytest.mark.parametrize(
    "word", [replace(ARMED, seq=4), replace(ARMED, boot=2), replace(LIE, boot=2**62)]
)
def test_older_words_and_other_boots_say_nothing(word):
    assert believed({"h2": word, "h3": word}) == OWN


def test_of_a_host_that_is_heard_its_own_word_alone_counts():
    assert believed({"h2": ARMED, "h3": ARMED}, state=UP) == OWN


def test_a_host_is_no_teller_of_itself():
    assert believed({"h1": ARMED, "h2": ARMED}) == replace(OWN, seq=9)
