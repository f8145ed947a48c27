"""A swarm of N hosts is asked, and what it costs the master is printed as a table.

    make swarm N=200

It lives in namespaces of its own, for its network and its processes: whatever it leaves running
ends with it. Without root it needs user namespaces.
"""

import argparse
import os
import sys
from pathlib import Path

from tests.lab import paths, process
from tests.swarm import kinds, measured, seen, verbs
from tests.swarm.cloud import Swarm

# Salt's own
TIMEOUT_S = 5
ALONE = ("unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child")


def parser():
    """The command's arguments."""
    top = argparse.ArgumentParser(prog="make swarm", description=__doc__.splitlines()[0])
    top.add_argument("number", type=int, metavar="N", help="of hosts")
    top.add_argument("--ill", type=int, help="so many are dead, hung or slow (default: a tenth)")
    top.add_argument("--guests", type=int, help="so many are deployed (default: a tenth of N)")
    top.add_argument("--only", action="append", help="this verb, such as query")
    top.add_argument("--keep", action="store_true", help="keep the figures for the page limits.md")
    top.add_argument("--timeout", type=int, default=TIMEOUT_S, help="the master's (default: 5)")
    top.add_argument("--folder", help=argparse.SUPPRESS)
    return top


def alone(arguments):
    """The exit code of this program in namespaces of its own, with a folder of its own."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    with process.folder("sw", "/tmp") as folder:  # the paths of sockets must be short
        argv = [sys.executable, "-m", "tests.swarm", *arguments, "--folder", folder]
        return process.run_bound([*ALONE, *user, *argv], cwd=paths.REPOSITORY)


def main(arguments):
    """The exit code: 1 when an answer is wrong."""
    given = parser().parse_args(arguments)
    if not given.folder:
        return alone(arguments)
    tenth = max(len(kinds.ILL), given.number // 10)
    ill = tenth if given.ill is None else given.ill
    swarm = Swarm(Path(given.folder), given.number, ill, given.timeout)
    try:
        swarm.start()
        return _asked(swarm, given, tenth)
    finally:
        swarm.stop()


def _asked(swarm, given, tenth):
    """Ask all, and print it."""
    master = measured.Master(swarm.master.pid, swarm.folder / "master/cache/jobs")
    found, faults = {}, 0
    deployed = tenth if given.guests is None else given.guests
    print("\n".join(seen.head()), flush=True)
    for verb in verbs.every(swarm, deployed):
        if given.only and verb.name not in given.only:
            continue
        cost, wrong = verbs.ask(verb, swarm, master, measured.cost)
        found[verb.name] = cost
        print(seen.row(given.number, verb.name, cost, bool(wrong)), flush=True)
        for one in wrong[:10]:
            print(f"WRONG: virt.{verb.name}: {one}", file=sys.stderr, flush=True)
        faults += bool(wrong)
        if given.keep and not faults:
            seen.keep(swarm, deployed, found)
    if faults:
        print(swarm.last_words(), file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
