"""Each safety condition taken away in turn: do the random runs notice?
``python3 -m tests.ha.mutants [NAME...] --runs N``.

NAME:FUNCTION is the condition as that function asks it, and holds everywhere else.
"""

import argparse
import contextlib
import sys
from unittest import mock

from saltvirt.ha.model import leadership, safety
from saltvirt.ha.model.policy import HaPolicy
from tests.ha import random as runs


def _led_once(asked_s, *_):
    """A lead that was granted never ends; one that was not cannot even be asked for."""
    return asked_s is not None


# condition → what it says when it is not there, or by what it is told
WITHOUT = {
    "lease_holds": True, "enough_acknowledge": True, "may_acknowledge": True, "may_disarm": True,
    "must_kill": False, "is_given_up": False, "does_not_hear": True, "may_grant": True,
    "lead_is_over": True, "may_start": True, "leads": _led_once, "is_enough": True,
    "may_master_acknowledge": True, "fences_left": True, "is_at_rest": False, "fence_proves": True,
    "watchdog_proves": True, "is_on_same_terms": True, "may_believe": True,
    "announced_s": lambda _old, new, *_: new, "boot_proves": True, "is_released": True,
    "is_gone": True, "is_shut_down": True, "may_place": True, "lease_proves": True,
}  # fmt: skip
# who asks a condition that several ask: what one of them rests on is no other one's to hold
ASKED_BY = {"is_enough": ("_granted_s", "_count_stored", "_is_enough", "majority_config")}
# by what the lead is counted: of each grant the time by which it lasts, as its host announced it
LEAD_BY, ALL_GRANTS = "lead_by", "leads:all_grants"
NAMES = (*WITHOUT, *(f"{name}:{one}" for name, ones in ASKED_BY.items() for one in ones),
         LEAD_BY, ALL_GRANTS)  # fmt: skip


def without(name):
    """The library without one of its conditions."""
    if name == LEAD_BY:
        return mock.patch.object(HaPolicy, "lead_by", lambda policy, _terms: policy)
    if name == ALL_GRANTS:
        return mock.patch.object(leadership, "_granted_s", _by_all(leadership._granted_s))
    condition, _, function = name.partition(":")
    return _where_asked(condition, function) if function else _without(condition)


def _by_all(real):
    """Also grants that end before the lead does."""

    def granted_s(state, view, _hosts):
        return real(state, view, {one.beat.host for one in leadership._granting(state, view)})

    return granted_s


def _where_asked(condition, function):
    real, what = getattr(safety, condition), WITHOUT[condition]

    def asked(*words):
        here = sys._getframe(1).f_code.co_name == function
        return what if here else real(*words)

    return mock.patch.object(safety, condition, asked)


@contextlib.contextmanager
def _without(name):
    real, with_term = getattr(safety, name), leadership._with_term
    what = WITHOUT[name]
    setattr(safety, name, what if callable(what) else lambda *_: what)
    if name == "leads":  # one who hears of a later term leads no more, without it, too
        leadership._with_term = lambda state, *seen: (
            state if state.leading_s else with_term(state, *seen)
        )
    try:
        yield
    finally:
        setattr(safety, name, real)
        leadership._with_term = with_term


def notices(name, most, seed=1):
    """(seed, what failed) of the first run that notices that a condition is missing, or None."""
    with without(name):
        for number in range(seed, seed + most):
            found = runs.failures(runs.draw(number, trap=1))
            if found:
                return number, found[0]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=300)
    asked = parser.parse_args()
    alive = []
    for name in asked.names or NAMES:
        found = notices(name, asked.runs)
        print(
            f"{name}: " + (f"seed {found[0]}: {found[1]}" if found else "not noticed"), flush=True
        )
        alive += [] if found else [name]
    print(f"{len(alive)} not noticed: {alive}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
