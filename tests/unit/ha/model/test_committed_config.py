"""Agreement of several masters on the desired state: the offered text, the hosts that are asked for
it, and files that are outdated."""

from dataclasses import replace

import pytest

from saltvirt.ha.model import committed_config
from saltvirt.ha.model.registry import CommittedConfig
from tests.unit.ha.model import made

KNOWN = CommittedConfig(term=2, version=4, text="known")
A, B, C = (committed_config.digest(text) for text in "abc")


def test_equal_texts_alone_have_one_digest():
    assert committed_config.digest("a") == A != B


# what a leader offers


@pytest.mark.parametrize(
    "own, is_offered",
    [
        (None, False),
        (CommittedConfig(), False),
        (CommittedConfig(2, 4, "known"), False),
        (CommittedConfig(9, 9, "known"), False),
        (CommittedConfig(2, 4, "mine"), True),  # made upon what was agreed on
        (CommittedConfig(2, 5, "mine"), True),
        (CommittedConfig(3, 0, "mine"), True),
        (CommittedConfig(2, 3, "mine"), False),
        (CommittedConfig(1, 9, "mine"), False),
        (CommittedConfig(2, 4, ""), False),
    ],
)
def test_a_master_offers_its_own_where_nothing_was_agreed_on_since(own, is_offered):
    before = made.registry(term=3, config=KNOWN)
    after = committed_config.with_offer(before, own, 6)
    if is_offered:
        assert after == replace(before, config=CommittedConfig(3, 6, "mine"))
    else:
        assert after is before


@pytest.mark.parametrize(
    "own, known, blind",
    [
        (None, "", False),
        (CommittedConfig(), "", True),
        (CommittedConfig(), "known", False),
        (CommittedConfig(text="mine"), "", False),
        (CommittedConfig(text="mine"), "known", False),
    ],
)
def test_a_master_is_blind_where_there_are_others_and_it_knows_of_no_wish(own, known, blind):
    assert (
        committed_config.is_blind(made.registry(config=CommittedConfig(text=known)), own) is blind
    )


# who is asked


def asked(own, leading_s=None, **told):
    """told: host to (its Wished, when it was heard)."""
    beats = {host: made.beat(host, at_s, config=one) for host, (one, at_s) in told.items()}
    view = made.seen(own_config=own, masters=("m1", "m2"))
    return committed_config.host_to_ask(
        made.master(leading_s=leading_s), replace(view, beats=beats)
    )


@pytest.mark.parametrize(
    "own, host",
    [
        (CommittedConfig(1, 1), "h2"), (CommittedConfig(2, 3, "known"), "h2"), (KNOWN, ""),
        (CommittedConfig(2, 5), ""),
        (CommittedConfig(3, 0), ""), (None, ""),
    ],
)  # fmt: skip
def test_a_host_is_asked_that_acts_by_what_was_agreed_on_later(own, host):
    assert asked(own, h1=(CommittedConfig(1, 9), 999), h2=(KNOWN, 900), h3=(KNOWN, 800)) == host


FORGED = CommittedConfig(2**60, 1, "no guests", committed_config.digest("no guests"))
TRUE = replace(KNOWN, digest=committed_config.digest("known"))
ONLY_DIGEST = replace(TRUE, text="")


def told(**beats):
    return committed_config.find_committed([made.beat(host, config=one).beat for host,
    one in beats.items()],
                         made.HOSTS)  # fmt: skip


@pytest.mark.parametrize("lie", [FORGED, replace(FORGED, term=2, version=4), CommittedConfig()])
def test_a_host_that_lies_forges_no_wish_of_a_person(lie):
    """With several masters the word of one host was taken for what persons want: that no guest is
    kept, or that a host is off."""
    assert told(h1=TRUE, h2=ONLY_DIGEST, h3=lie) == KNOWN
    assert told(h1=ONLY_DIGEST, h2=ONLY_DIGEST, h3=lie) == CommittedConfig()
    assert (
        told(h3=lie)
        == told(h1=CommittedConfig(), h2=CommittedConfig(), h3=lie)
        == CommittedConfig()
    )
    assert asked(CommittedConfig(), h1=(ONLY_DIGEST, 9), h2=(ONLY_DIGEST, 8), h3=(lie, 10)) == "h1"


def test_of_two_words_the_one_is_taken_that_a_majority_has_or_has_had():
    later = CommittedConfig(2, 5, "later", committed_config.digest("later"))
    assert told(h1=later, h2=TRUE) == KNOWN
    assert told(h1=later, h2=later, h3=TRUE) == CommittedConfig(2, 5, "later")


def test_what_hosts_of_a_version_before_tell_has_no_digest():
    assert told(h1=KNOWN, h2=replace(KNOWN, text="")) == KNOWN


def test_of_two_hosts_that_know_it_the_one_that_was_heard_last_is_asked():
    assert asked(CommittedConfig(), h1=(KNOWN, 998), h2=(KNOWN, 999), h3=(KNOWN, 997)) == "h2"


def test_nobody_is_asked_by_who_leads_or_hears_nobody():
    assert asked(CommittedConfig(), leading_s=0, h1=(KNOWN, 999), h2=(KNOWN, 999)) == ""
    assert asked(CommittedConfig()) == ""


# what becomes of the file


OWN = CommittedConfig(2, 4, "b")


@pytest.mark.parametrize(
    "own, offers, news, told",
    [
        # nothing was agreed on, or what the file was made upon knew more
        (OWN, (B,), CommittedConfig(3, 1, ""), (OWN, (B,), False)),
        (OWN, (B,), CommittedConfig(2, 3, "x"), (OWN, (B,), False)),
        # the file's own text was agreed on
        (OWN, (A, B), CommittedConfig(3, 1, "b"), (CommittedConfig(3, 1, "b"), (), False)),
        (OWN, (A, B), CommittedConfig(2, 4, "b"), (CommittedConfig(2, 4, "b"), (), False)),
        (OWN, (C,), CommittedConfig(3, 1, "b"), (CommittedConfig(3, 1, "b"), (), False)),
        # offers are lost
        # an earlier one of its texts was: what came after it is still to be agreed on
        (OWN, (A, B), CommittedConfig(3, 1, "a"), (CommittedConfig(3, 1, "b"), (B,), False)),
        (OWN, (C, A, B), CommittedConfig(3, 1, "c"), (CommittedConfig(3, 1, "b"), (A, B), False)),
        # what it was made upon, once more: its own stays on offer
        (OWN, (B,), CommittedConfig(2, 4, "x"), (OWN, (B,), False)),
        # another's came first: the file is that, and who wished otherwise is told
        (OWN, (B,), CommittedConfig(2, 5, "x"), (CommittedConfig(2, 5, "x"), (), True)),
        (OWN, (), CommittedConfig(2, 5, "x"), (CommittedConfig(2, 5, "x"), (), False)),
    ],
)
def test_a_file_follows_what_was_agreed_on_and_keeps_what_is_not_yet(own, offers, news, told):
    assert committed_config.merge(own, offers, news) == told
