"""Requests of a minion to its master, through an ext_pillar that is requested by name."""

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
    """The pillar with the answer. function: ``pillar.ext`` of the minion.

    Since 3008.2, Salt masks pillar values unless unmasked values are requested.
    """
    if "unmask" in salt.utils.args.get_function_argspec(function).args:
        return function(external, unmask=True)
    return function(external)


def virtkey(functions: Functions) -> Callable[[Any], Any]:
    """A callable that sends a request to the ext_pillar ``virtkey``. functions: ``__salt__`` of the
    minion."""
    return lambda query: (ask(functions["pillar.ext"], {"virtkey": query}) or {}).get("virtkey")


def secrets(functions: Functions, opts: dict[str, Any], name: str) -> dict[str, Any]:
    """The secret arguments that the master's operation holds for this host; see fleet.secret.

    opts: the minion's options. Raises OperationFailed.
    """
    from saltvirt.fleet import seal  # noqa: PLC0415

    receiver = seal.Receiver(opts["id"])
    answer = virtkey(functions)({"name": name, "seal": receiver.public}) or {}
    if not answer.get("sealed"):
        raise errors.OperationFailed(
            f"the master does not release the secrets of {name}: no operation for it is running "
            "there (on_demand_ext_pillar must have virtkey in its configuration)"
        )
    secret_options: dict[str, Any] = receiver.open(answer["sealed"])
    return secret_options


def submit_key(functions: Functions, name: str, pub_key: str) -> bool:
    """Submit a guest's key; True if the master has accepted it.

    The guest is complete in any case: otherwise its key is pending like any other.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return bool((virtkey(functions)([name, pub_key]) or {}).get(name))
        except Exception as exc:
            log.warning("the key of %s could not be submitted to the master: %s", name, exc)
        if tries_left:
            time.sleep(_PAUSE_S)
    return False


def pending_key_note(name: str, host: str) -> str:
    """The warning about a key that was submitted and not accepted. host: minion id of this
    hypervisor."""
    return (
        f"the master has not accepted the key of {name}: salt-key -l all shows whether it waits "
        "there, or whether another minion has the name and the key will be denied; salt-run "
        f"virt.authorize {name} {host}, before the guest is created, has it accepted"
    )
