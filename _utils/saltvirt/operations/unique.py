"""Is a name free? A host that does not answer may have a guest of it: silence is no proof."""

import time

from saltvirt import errors
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations import begun

# what an operator says who knows that no silent host has such a guest
ARGUMENT = "name_is_free"


def check(fleet, name, unheard, *, seeded=False, sure=False):
    """Raises unless no host that did not answer can have a guest of this name.

    unheard: host to why it did not answer; the others were asked. Where only libvirt is silent,
    its files tell the names. seeded: a new guest with a key: no guest of that name with one is
    anywhere, as long as the master has never seen a key of it. sure: the operator says so.
    Raises AlreadyExists, OperationFailed.
    """
    _not_at_work(fleet, name, unheard)
    if not unheard or sure:
        return
    silent = _silent(fleet, name, unheard)
    told = begun.of(fleet.opts, name)
    if told and told["host"] in silent:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["since"]))
        raise errors.OperationFailed(
            f"{told['host']} was told to make {name} by {told['what']} at {since} and does not "
            f"answer now: {silent[told['host']]}; {_advice()}"
        )
    if silent and not (seeded and KeyStore(fleet.opts).status(name) is None):
        why = "; ".join(f"{host}: {reason}" for host, reason in sorted(silent.items()))
        raise errors.OperationFailed(
            f"{name}: it may be on a host that does not answer: {why}; {_advice()}"
        )


def _not_at_work(fleet, name, unheard):
    """Raises OperationFailed while a host goes on with what a runner that died told it: before it
    has a domain of the name, for it may be fetching the image."""
    told = begun.of(fleet.opts, name)
    if not told or told["host"] in unheard or told["host"] not in fleet.hosts():
        return
    owner = fleet.one(told["host"], "virt.leftovers").get("at_work", {}).get(name)
    if owner:
        raise errors.OperationFailed(
            f"{told['host']} is still at work on {name}: {owner}; wait for it"
        )


def _advice():
    return f"wait for it, or say {ARGUMENT}=True when no such host has a guest of that name"


def _silent(fleet, name, unheard):
    """Those of the unheard of which nothing is known. Raises AlreadyExists."""
    silent = dict(unheard)
    for answer in fleet.ask(sorted(unheard), "virt.names_on_disk"):
        if answer.ok and isinstance(answer.data, list):
            if name in answer.data:
                raise errors.AlreadyExists(
                    f"{name} exists already, on {answer.host}, whose libvirt does not answer"
                )
            del silent[answer.host]
    return silent
