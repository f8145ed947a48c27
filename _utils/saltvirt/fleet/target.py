"""Which minions are hypervisors, and which of them are connected, as the master knows it."""

import salt.utils.minions

from saltvirt import errors

# our grain, see _grains/virt_host.py
DEFAULT_TARGET = "G@virt_host:hypervisor:True"


def expression(opts):
    """The compound target of hypervisors: ``virt:hosts`` of the master's configuration; the
    default are minions that report themselves (grain ``virt_host:hypervisor``)."""
    target = (opts.get("virt") or {}).get("hosts") or DEFAULT_TARGET
    if not isinstance(target, str):
        raise errors.InvalidInput(f"virt:hosts must be a compound target, not {target!r}")
    return target


def hosts(opts, target=None):
    """The accepted minions that are hypervisors, sorted.

    opts: the master's configuration. target: a compound target that replaces the configured
    one.

    The match is not greedy: a minion without cached grains does not match a grain.
    """
    target = target or expression(opts)
    found = salt.utils.minions.CkMinions(opts).check_minions(target, "compound", greedy=False)
    return sorted(found["minions"])


def accepted(opts):
    """All minions that this master itself accepted, sorted."""
    return hosts(opts, "*")


def connected(opts, ids=None):
    """Those of the ids (default: of all minions) with a connection to this master, as a set."""
    subset = None if ids is None else set(ids)
    return set(salt.utils.minions.CkMinions(opts).connected_ids(subset=subset))
