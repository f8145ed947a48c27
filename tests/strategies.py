"""Hypothesis strategies for what a bad host, file or caller sends, and what must come of it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saltvirt import errors
from tests.functional import hostile

# int() refuses the first and the last, which str.isdigit() takes for numbers
DIGITS = ("²", "٣", "1" * 5000)
TEXT = st.text(max_size=20) | st.sampled_from((*hostile.NAMES, *DIGITS))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def twisted(data):
    """Plain data with anything in one place."""
    place = st.sampled_from([*hostile.places(data)])
    return st.builds(hostile.replaced, st.just(data), place, JSON)


def cut(text):
    """A text of which a part is replaced by another text."""
    place = st.integers(0, len(text))
    return st.builds(
        lambda a, b, new: text[: min(a, b)] + new + text[max(a, b) :], place, place, TEXT
    )


def parsed_or_refused(parsers):
    """A test: whatever a parser is given is parsed, or refused by an error of ours in one line.

    parsers: a name to (what is parsed, a strategy; the parser)."""

    @pytest.mark.parametrize("kind", parsers)
    @settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def test(kind, data):
        strategy, parse = parsers[kind]
        drawn = data.draw(strategy)
        try:
            parse(drawn)
        except errors.VirtError as exc:
            assert len(exc.text.splitlines()) == 1 and len(exc.text) < 5000

    return test
