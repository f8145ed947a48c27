"""A minion's questions to its master, through an ext_pillar that is asked for by name."""

import logging
import time

import salt.utils.args

from saltvirt import errors

# a busy master may not answer at once
_TRIES = 3
_PAUSE_S = 2

log = logging.getLogger(__name__)


def ask(function, external):
    """The pillar with the answer in it. function: ``pillar.ext`` of the minion.

    Since 3008.2 Salt masks pillar values unless it is asked for them as they are.
    """
    if "unmask" in salt.utils.args.get_function_argspec(function).args:
        return function(external, unmask=True)
    return function(external)


def virtkey(functions):
    """A callable that asks the ext_pillar ``virtkey``. functions: ``__salt__`` of the minion."""
    return lambda asked: (ask(functions["pillar.ext"], {"virtkey": asked}) or {}).get("virtkey")


def secrets(functions, opts, name):
    """What the master's operation keeps for this host alone; see fleet.secret.

    opts: the minion's options. Raises OperationFailed.
    """
    from saltvirt.pki.common import seal  # noqa: PLC0415

    receiver = seal.Receiver(opts["id"])
    found = virtkey(functions)({"name": name, "seal": receiver.public}) or {}
    if not found.get("sealed"):
        raise errors.OperationFailed(
            f"the master does not give what is secret of {name}: no operation of it is under way "
            "there (on_demand_ext_pillar must have virtkey in its configuration)"
        )
    return receiver.open(found["sealed"])


def hand_in(functions, name, pub_key):
    """Hands a guest's key in; True when the master says that it accepted it.

    The guest is whole, whatever the master says: its key is then pending as any other's.
    """
    for left in reversed(range(_TRIES)):
        try:
            return bool((virtkey(functions)([name, pub_key]) or {}).get(name))
        except Exception as exc:
            log.warning("the key of %s could not be handed to the master: %s", name, exc)
        if left:
            time.sleep(_PAUSE_S)
    return False
