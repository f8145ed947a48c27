"""``make backup-random``: random steps for backups in a lab; each backup that is good is restored
by qemu-img alone and compared with what the disks held when it was made.

    make backup-random                     # one sequence, of the clock
    make backup-random SEED=7 RUNS=50      # 50 sequences from that seed on
    make backup-random STEPS=file          # steps of a file, as a failure printed them
    make backup-random ARGS="--lab NAME"   # in a lab that is up, with three hypervisors

The exit code is 1 when something broke: it is printed, with a list of steps as short as SHRINK (10)
minutes allow.
"""

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.backup import steps, world
from tests.backup.act import Broken, Run
from tests.backup.world import Ended
from tests.chaos import shrink
from tests.chaos.steps import dumps, loads
from tests.lab import process
from tests.lab.fixtures import Lab, recipe
from tests.lab.sh import LabError


def attempt(there, given, say):
    """(None or what broke, what became of the steps); the lab is clean then."""
    run = Run(there, say)
    try:
        run.all(given)
    except Broken as exc:
        return str(exc), run.said
    except (LabError, AssertionError, Ended) as exc:
        return f"lab: {exc}", run.said
    except Exception as exc:  # of these steps themselves; the next seed is run all the same
        return f"steps: {type(exc).__name__}: {exc}", run.said
    finally:
        if os.environ.get("BACKUP_STAY") != "1":
            there.wipe()
    return None, run.said


def shrunk(there, given, broken, minutes):
    """The steps made short: what breaks begins with the same word."""
    end, kind = time.monotonic() + minutes * 60, broken.partition(":")[0]

    def fails(fewer):
        if time.monotonic() > end:
            raise StopIteration
        found, _ = attempt(there, fewer, lambda text: None)
        return found is not None and found.partition(":")[0] == kind

    return shrink.shrink(given, fails, say)


def say(text):
    print(text, flush=True)


def one(there, seed, given, minutes, total):
    """Runs a list; True when all held."""
    began = time.monotonic()
    say(f"seed {seed}: {len(given)} steps" if seed is not None else f"{len(given)} steps")
    broken, said = attempt(there, given, say)
    total.update(said)
    if broken is None:
        say(f"held: seed {seed}, {time.monotonic() - began:.0f} s")
        return True
    say(f"BROKEN by seed {seed}: {broken}\nsteps:\n{dumps(given)}")
    if minutes:
        say(f"shrinking, for {minutes:g} minutes at most")
        say(dumps(shrunk(there, given, broken, minutes)))
    return False


def arguments():
    top = argparse.ArgumentParser(prog="make backup-random", description=__doc__)
    top.add_argument("--seed", type=int)
    top.add_argument("--runs", type=int, default=1)
    top.add_argument("--steps", type=Path)
    top.add_argument("--length", type=int, default=10)
    top.add_argument("--minutes", type=float, help="end after the sequence in which they are over")
    top.add_argument("--shrink", type=float, default=10)
    top.add_argument("--lab", help="one that is up")
    top.add_argument("--go-on", action="store_true", help="the next seed after one that failed")
    return top.parse_args()


@contextlib.contextmanager
def a_world(name):
    """In the lab of that name, or in one of its own."""
    lab = Lab(name or f"backup-{os.getpid()}")
    if name is None:
        lab.up(3, recipe(), owner=os.getpid())
        lab.sync()
    there = world.World(lab)
    try:
        there.prepare()
        yield there
    finally:
        there.close()
        if name is None:
            lab.down()


def main():
    given = arguments()
    process.die_with_parent()
    total, held, bad = Counter(), [], []
    began = time.monotonic()
    with a_world(given.lab) as there:
        if given.steps:
            return 0 if one(there, None, loads(given.steps.read_text()), 0, total) else 1
        first = int(time.time()) % 100000 if given.seed is None else given.seed
        for seed in range(first, first + given.runs):
            good = one(there, seed, steps.draw(seed, given.length), given.shrink, total)
            (held if good else bad).append(seed)
            over = given.minutes and time.monotonic() - began > given.minutes * 60
            if over or (bad and not given.go_on):
                break
    say("\n".join(f"{count:5} {what}" for what, count in sorted(total.items())))
    say(f"{len(held)} sequences held, {len(bad)} broke {bad or ''}, "
        f"{(time.monotonic() - began) / 60:.0f} min")  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
