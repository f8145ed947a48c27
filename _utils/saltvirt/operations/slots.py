"""How many operations run at once on this master: deployments; and migrations, in all and
into or out of one host.

``virt:inits_at_once``, and ``at_once`` and ``at_once_per_host`` of ``virt:migration``, in the
master's configuration. Who comes too many waits. A slot is a locked file: it goes with its
process, however that ends.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from saltvirt import units

AT_ONCE = 8
PER_HOST = 2
INITS = 8
_LOOK_S = 0.5


def limits(opts):
    """(how many in all, how many of one host) by the master's configuration."""
    config = (opts.get("virt") or {}).get("migration") or {}
    in_all = units.parse_count(config.get("at_once", AT_ONCE), "virt:migration:at_once")
    each = units.parse_count(
        config.get("at_once_per_host", PER_HOST), "virt:migration:at_once_per_host"
    )
    return in_all, each


@contextlib.contextmanager
def taken(opts, hosts, tell):
    """Holds a slot of the whole and one of each host for the block; waits for them.

    opts: the master's configuration. tell: called once with the reason when it has to wait.
    """
    in_all, each = limits(opts)
    with _all_of(opts, {"all": in_all, **{f"of-{host}": each for host in hosts}}, tell):
        yield


@contextlib.contextmanager
def deploying(opts, tell):
    """Holds one of the slots for deployments; waits for it. More at once would only make the
    hosts, and Salt between them, so slow that answers are lost."""
    given = (opts.get("virt") or {}).get("inits_at_once", INITS)
    with _all_of(opts, {"init": units.parse_count(given, "virt:inits_at_once")}, tell):
        yield


@contextlib.contextmanager
def _all_of(opts, wanted, tell):
    """One slot of each kind, or none while we wait: so nobody waits for one who waits."""
    folder = Path(opts["cachedir"]) / "virt" / "slots"
    folder.mkdir(parents=True, exist_ok=True)
    told = False
    while True:
        held, short = _take(folder, wanted)
        if short is None:
            break
        if not told:
            tell(_reason(short, wanted[short]))
            told = True
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        for handle in held:
            os.close(handle)


def _take(folder, wanted):
    """(handles, None), or ([], the kind of which there is none left)."""
    held = []
    for kind, number in wanted.items():
        handle = _one(folder, kind, number)
        if handle is None:
            for other in held:
                os.close(other)
            return [], kind
        held.append(handle)
    return held, None


def _one(folder, kind, number):
    for index in range(number):
        handle = os.open(folder / f"{kind}.{index}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            os.close(handle)
    return None


def _reason(kind, number):
    if kind == "init":
        return f"{number} deployments are under way (virt:inits_at_once)"
    if kind == "all":
        return f"{number} migrations are under way (virt:migration:at_once)"
    host = kind.removeprefix("of-")
    return f"{number} from or to {host} are under way (virt:migration:at_once_per_host)"
