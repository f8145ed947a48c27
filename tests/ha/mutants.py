"""Each safety condition taken away in turn: do the random runs notice?
``python3 -m tests.ha.mutants [NAME...] --runs N``."""

import argparse
import contextlib
import sys

from saltvirt.ha import lead, safety
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
    "is_gone": True, "is_over": True, "may_place": True, "lease_proves": True,
}  # fmt: skip


@contextlib.contextmanager
def without(name):
    """The library without one of its conditions."""
    real, with_term = getattr(safety, name), lead._with_term
    what = WITHOUT[name]
    setattr(safety, name, what if callable(what) else lambda *_: what)
    if name == "leads":  # one who hears of a later term leads no more, without it, too
        lead._with_term = lambda state, *seen: state if state.leading_s else with_term(state, *seen)
    try:
        yield
    finally:
        setattr(safety, name, real)
        lead._with_term = with_term


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
    for name in asked.names or WITHOUT:
        found = notices(name, asked.runs)
        print(
            f"{name}: " + (f"seed {found[0]}: {found[1]}" if found else "not noticed"), flush=True
        )
        alive += [] if found else [name]
    print(f"{len(alive)} not noticed: {alive}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
