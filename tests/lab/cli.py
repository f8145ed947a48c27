"""The command tests/lab/lab."""

import argparse
import os
import sys
import time
from pathlib import Path

from tests.lab import (
    bare,
    cache,
    layers,
    matrix,
    packages,
    paths,
    process,
    rootless,
    storage,
    suite,
)
from tests.lab.cloud import Cloud
from tests.lab.recipe import SALTS, SUITES, Recipe
from tests.lab.sh import LabError
from tests.lab.sync import sync
from tests.tools import coverage

# verbs that are about the tree, not about a lab
OF_THE_TREE = (
    "test", "pytest", "rootless", "lint", "ruff", "mypy", "bench", "corpus", "chaos",
    "backup-random", "life", "coverage", "parity", "mutation", "site", "release", "swarm", "wheel",
)  # fmt: skip
MODULES = {
    "parity": "tests.parity", "mutation": "tests.tools.mutation", "site": "tests.tools.site",
    "release": "tests.tools.release", "wheel": "tests.tools.wheel",
    "swarm": "tests.swarm",
}  # fmt: skip


def say(text):
    """A line about progress, to people."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def parser():
    """The command's arguments."""
    top = argparse.ArgumentParser(prog="lab", description="A cloud on one machine.")
    top.add_argument("--name", help="which lab (default: SALTVIRT_LAB, or lab)")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (("up", "bring a lab up"), ("build", "build its caches only")):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("--debian", default="12", choices=sorted(SUITES))
        verb.add_argument("--salt", default="3008", choices=sorted(SALTS))
        if name == "up":
            verb.add_argument("hosts", nargs="?", type=int, default=2, metavar="N")
            verb.add_argument("--bare", action="store_true", help="no br0: eth0 has the address")
            verb.add_argument("--empty", action="store_true", help="no br0 and no libvirt")
            verb.add_argument("--mixed", action="store_true", help="hv2: Debian's other release")
            verb.add_argument("--shared", action="store_true", help="network storage: GlusterFS")
            verb.add_argument("--owner", type=int, metavar="PID", help="go down when PID ends")
    verb = verbs.add_parser("exec", help="run a command in a machine")
    verb.add_argument("host")
    verb.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    verbs.add_parser("shell", help="a shell in a machine").add_argument("host")
    for name, text in (("push", "copy SRC into folder DST of a machine"),
                       ("pull", "copy SRC of a machine into folder DST")):  # fmt: skip
        verb = verbs.add_parser(name, help=text)
        for argument in ("host", "src", "dst"):
            verb.add_argument(argument)
    verbs.add_parser("sync", help="publish this tree to the lab and sync_all everywhere")
    verbs.add_parser("status", help="which machines there are")
    verbs.add_parser("down", help="remove all of the lab")
    for name, text in (("test", "lint, and run all tests that can run here"),
                       ("pytest", "run pytest in the tests' Python"),
                       ("rootless", "run tests/rootless as a user who is not root"),
                       ("lint", "run ruff and mypy as CI does"),
                       ("ruff", "run ruff in the tests' Python"),
                       ("mypy", "run mypy in the tests' Python"),
                       ("bench", "run a file of tests/bench in the tests' Python"),
                       ("corpus", "read, edit and define libvirt's own definitions"),
                       ("chaos", "random steps with faults: tests/chaos/README.md"),
                       ("backup-random", "random steps: tests/backup/README.md"),
                       ("life", "every verb after every other: tests/life/README.md"),
                       ("coverage", "run tests and print which lines they reach"),
                       ("parity", "compare Salt 3007's virt and this tree's"),
                       ("mutation", "change what decides: do the tests notice?"),
                       ("site", "build the manuals as a site"),
                       ("release", "set the version and write the changelog"),
                       ("swarm", "a master and as many hosts as asked, measured"),
                       ("wheel", "build what pip installs")):  # fmt: skip
        verb = verbs.add_parser(name, help=text, prefix_chars="\0")
        verb.add_argument("arguments", nargs=argparse.REMAINDER)
    verb = verbs.add_parser("bare", help="run a command on a Debian that has nothing")
    verb.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    verb = verbs.add_parser("matrix", help="what must hold on each pair of Debian and Salt")
    verb.add_argument("--only", action="append", metavar="DEBIAN/SALT", help="such as 13/3006")
    verb.add_argument("--part", action="append", choices=list(matrix.PARTS), help="of the tests")
    for name, verb in verbs.choices.items():
        if name in OF_THE_TREE:
            continue
        verb.add_argument("--name", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return top


def up(cloud, given):
    """Bring the lab up and say how to go on."""
    began = time.monotonic()
    if given.owner:
        process.die_with_parent()
    recipe = Recipe(given.debian, given.salt)
    kinds = (given.empty, given.shared, given.mixed)
    cloud.up(given.hosts, recipe, given.bare, given.owner, say, *kinds)
    if given.shared:
        storage.serve(cloud)
    say(f"{cloud.name} is up in {time.monotonic() - began:.0f} s: {' '.join(cloud.names())}")


def build(_cloud, given):
    """Build the caches, and drop old ones."""
    packages.ensure(say)
    layers.layers(Recipe(given.debian, given.salt), say)
    cache.prune()


def enter(cloud, given):
    """Become a command, or a shell, in a machine."""
    command = given.command if given.verb == "exec" else ["bash", "-l"]
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise LabError("exec needs a command")
    argv = cloud.machine(given.host).argv(command)
    os.closerange(3, 256)  # what the caller has open is not the machine's
    os.execvp(argv[0], argv)


def copy(cloud, given):
    """Copy files into or out of a machine."""
    if given.verb == "push":
        cloud.push(given.host, Path(given.src), given.dst)
    else:
        cloud.pull(given.host, given.src, Path(given.dst))


def synced(cloud, _given):
    """Sync, and say what changed where."""
    for name, kinds in sorted(sync(cloud).items()):
        changed = [f"{len(items)} {kind}" for kind, items in kinds.items() if items]
        print(f"{name}: {', '.join(changed) or 'nothing new'}")


def status(cloud, _given):
    """Show the lab's machines."""
    about = cloud.describe()
    if not about:
        print(f"{cloud.name}: not up")
        return
    print(f"{cloud.name}: Debian {about['debian']}, Salt {about['salt']}")
    for name in cloud.names():
        pid = cloud.machine(name).leader()
        print(f"  {name}: {f'running, pid {pid}' if pid else 'down'}")


def down(cloud, _given):
    """Remove the lab."""
    cloud.down()


def tests(_cloud, given):
    """Run tests, a bench, ruff or mypy; their exit code."""
    if "MAKELEVEL" in os.environ:
        process.die_with_parent()  # make, when it is killed, tells nobody
    if given.verb == "bench":
        name, *arguments = given.arguments or ["placement"]
        return suite.bench(name, arguments, say)
    own = {
        "test": suite.everything, "corpus": suite.corpus, "chaos": suite.chaos,
        "backup-random": suite.backup_random, "life": suite.life,
        "coverage": coverage.run_tests, "pytest": suite.pytest,
        "rootless": rootless.tests, "lint": suite.lint,
    }  # fmt: skip
    if given.verb in own:
        return own[given.verb](given.arguments, say)
    return suite.module(MODULES.get(given.verb, given.verb), given.arguments, say)


def matrixed(_cloud, given):
    """Run the tutorial on every pair; 1 when one failed."""
    return matrix.matrix(given.only, given.part, say)


def barely(_cloud, given):
    """Run a command in a bare root; its exit code."""
    if not given.command:
        raise LabError("bare needs a command, such as: bare make test")
    return bare.run_bare(given.command, say)


VERBS = {
    "up": up, "build": build, "exec": enter, "shell": enter, "push": copy, "pull": copy,
    "sync": synced, "status": status, "down": down,
    "test": tests, "pytest": tests, "rootless": tests, "lint": tests,
    "ruff": tests, "mypy": tests,
    "bench": tests, "corpus": tests,
    "chaos": tests, "backup-random": tests, "life": tests,
    "coverage": tests, "parity": tests, "mutation": tests,
    "site": tests, "release": tests, "swarm": tests, "wheel": tests,
    "matrix": matrixed, "bare": barely,
}  # fmt: skip


def main(argv=None):
    """Run one verb; the exit code."""
    given = parser().parse_args(argv)
    try:
        reason = packages.why_not()
        if reason and given.verb not in OF_THE_TREE:
            raise LabError(reason)
        return VERBS[given.verb](Cloud(paths.instance_name(given.name)), given) or 0
    except LabError as exc:
        say(exc)
        return 1
    except KeyboardInterrupt:
        return 130
