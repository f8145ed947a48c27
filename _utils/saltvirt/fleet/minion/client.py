"""A minion's questions to its master, through an ext_pillar that is asked for by name."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import salt.utils.args

from saltvirt import errors

# ``__salt__`` of the minion
Functions = Mapping[str, Callable[..., Any]]

# a busy master may not answer at once
_TRIES = 3
_PAUSE_S = 2

log = logging.getLogger(__name__)


def ask(function: Callable[..., Any], external: dict[str, Any]) -> Any:
    """The pillar with the answer in it. function: ``pillar.ext`` of the minion.

    Since 3008.2 Salt masks pillar values unless it is asked for them as they are.
    """
    if "unmask" in salt.utils.args.get_function_argspec(function).args:
        return function(external, unmask=True)
    return function(external)


def virtkey(functions: Functions) -> Callable[[Any], Any]:
    """A callable that asks the ext_pillar ``virtkey``. functions: ``__salt__`` of the minion."""
    return lambda query: (ask(functions["pillar.ext"], {"virtkey": query}) or {}).get("virtkey")


def secrets(functions: Functions, opts: dict[str, Any], name: str) -> dict[str, Any]:
    """What the master's operation keeps for this host alone; see fleet.secret.

    opts: the minion's options. Raises OperationFailed.
    """
    from saltvirt.pki.common import seal  # noqa: PLC0415

    receiver = seal.Receiver(opts["id"])
    answer = virtkey(functions)({"name": name, "seal": receiver.public}) or {}
    if not answer.get("sealed"):
        raise errors.OperationFailed(
            f"the master does not give what is secret of {name}: no operation of it is under way "
            "there (on_demand_ext_pillar must have virtkey in its configuration)"
        )
    secret_options: dict[str, Any] = receiver.open(answer["sealed"])
    return secret_options


def submit_key(functions: Functions, name: str, pub_key: str) -> bool:
    """Hands a guest's key in; True when the master says that it accepted it.

    The guest is whole, whatever the master says: its key is then pending as any other's.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return bool((virtkey(functions)([name, pub_key]) or {}).get(name))
        except Exception as exc:
            log.warning("the key of %s could not be handed to the master: %s", name, exc)
        if tries_left:
            time.sleep(_PAUSE_S)
    return False


def pending_key_note(name: str, host: str) -> str:
    """What the operator is told of a key that was handed in and not accepted. host: this
    hypervisor's minion id."""
    return (
        f"the master has not accepted the key of {name}: salt-key -l all shows whether it waits "
        "there, or whether another minion has the name and the key will be denied; salt-run "
        f"virt.authorize {name} {host}, before the guest is created, has it accepted"
    )
