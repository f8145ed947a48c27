"""``make life``: every verb after every other verb, with guests that boot.

    make life                       # all walks; begins again where it was stopped
    make life ARGS="--lane 1/2"     # every second walk, in a lab of its own
    make life ARGS="--walk 17"      # one walk
    make life ARGS="--verbs clone,backup --on raw/uefi/q35"
    make life SEED=7 MINUTES=60     # random triples

The exit code is 1 if something does not hold; each broken walk is made shorter, and the
commands of the shortest one are printed.
"""

import argparse
import hashlib
import json
import os
import sys
import time

from tests.lab import paths
from tests.lab.fixtures import Lab, recipe
from tests.lab.sh import LabError, run
from tests.life import plan, verbs, world
from tests.life.walk import Broken, Walk

RESULTS = paths.REPOSITORY / "build/life"


def say(text):
    """Print a line for people."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def parser():
    """The command's arguments."""
    top = argparse.ArgumentParser(prog="life")
    top.add_argument("--lane", default="1/1", help="which share of the walks, such as 1/2")
    top.add_argument("--walk", type=int, help="one walk of the plan")
    top.add_argument("--verbs", help="a walk of these verbs, separated by commas")
    top.add_argument("--on", default="overlay/bios/pc", help="STORAGE/FIRMWARE/MACHINE of --verbs")
    top.add_argument("--seed", type=int, help="random triples from this seed")
    top.add_argument("--minutes", type=float, default=0, help="stop after so many minutes")
    top.add_argument("--lab", help="a lab that is up and prepared; it stays up")
    top.add_argument("--afresh", action="store_true", help="do not go on where a run was stopped")
    return top


def planned(given):
    """[(number, combination, verbs)] of the walks to do."""
    names = list(verbs.VERBS)
    if given.verbs:
        return [(0, tuple(given.on.split("/")), tuple(given.verbs.split(",")))]
    if given.seed is not None:
        walks = plan.triples(names, given.seed, 1000)
    else:
        walks = plan.walks(names)
    numbered = [(number, *walk) for number, walk in enumerate(walks)]
    if given.walk is not None:
        return numbered[given.walk : given.walk + 1]
    share, lanes = map(int, given.lane.split("/"))
    return numbered[share - 1 :: lanes]


def results_file(given):
    """The file of what has passed: of this commit, and of this plan."""
    commit = run(["git", "-C", paths.REPOSITORY, "rev-parse", "--short=12", "HEAD"]).stdout.strip()
    text = json.dumps([list(verbs.VERBS), given.seed, plan.LENGTH, plan.ROUNDS])
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    RESULTS.mkdir(parents=True, exist_ok=True)
    return RESULTS / f"{commit}-{digest}-{given.lane.replace('/', 'of')}.json"


def attempt(lab, number, combination, steps):
    """Do one walk; (faults, commands)."""
    walk = Walk(lab, combination, number, say)
    try:
        walk.run(steps)
    except Broken as exc:
        return exc.lines, walk.commands
    except LabError as exc:
        return [f"the lab: {exc}"], walk.commands
    finally:
        world.clear(lab)
    return [], walk.commands


def shortest(lab, number, combination, steps):
    """Shorten a broken walk from its beginning while it stays broken: (verbs, faults, commands)."""
    best = None
    for start in range(len(steps) - 1, -1, -1):
        faults, commands = attempt(lab, number + start, combination, steps[start:])
        if faults:
            best = (steps[start:], faults, commands)
            break
    return best


def report(number, combination, steps, lab):
    """Do one walk; print how it went, and return whether all held."""
    began = time.monotonic()
    title = f"walk {number} on {'/'.join(combination)}: {' '.join(steps)}"
    faults, commands = attempt(lab, number, combination, steps)
    seconds = time.monotonic() - began
    if not faults:
        say(f"held, {seconds:.0f} s: {title}")
        return True
    done = sum(command.startswith("# ") and command[2:] in verbs.VERBS for command in commands)
    say(f"BROKEN after {done} verbs, {seconds:.0f} s: {title}")
    for line in faults:
        say(f"  {line}")
    short = shortest(lab, number, combination, steps[: max(done, 1)]) if done > 1 else None
    if short:
        say(f"  shortest: --on {'/'.join(combination)} --verbs {','.join(short[0])}")
    for command in short[2] if short else commands:
        say(f"    {command}")
    return False


def main(argv=None):
    """Run walks; the exit code."""
    given = parser().parse_args(argv)
    path = results_file(given)
    held = set() if given.afresh or not path.exists() else set(json.loads(path.read_text()))
    lab = Lab(given.lab or f"life-{given.lane.replace('/', 'of')}")
    if not given.lab:
        lab.up(2, recipe(), owner=os.getpid(), say=say, shared=True)
        world.prepare(lab, say)
    end = time.monotonic() + given.minutes * 60 if given.minutes else None
    broken = 0
    try:
        for number, combination, steps in planned(given):
            if number in held and given.walk is None and not given.verbs:
                continue
            if end and time.monotonic() > end:
                break
            if report(number, combination, steps, lab):
                held.add(number)
                if not given.verbs:
                    path.write_text(json.dumps(sorted(held)))
            else:
                broken += 1
    finally:
        if not given.lab:
            lab.down()
    say(f"{len(held)} walks held, {broken} broken")
    print(f"{len(held)} passed, {broken} failed", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
