"""Whether a hypervisor may be taken from those that the master waits for."""

from __future__ import annotations

import contextlib

from saltvirt import errors
from saltvirt.fleet import target
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find, shared_storage_check
from saltvirt.operations.journal import location_cache

_SHOWN = 5


def refuse_running(fleet: Fleet, host: str) -> None:
    """Raises OperationFailed where the host still runs guests by its minion's word, also when
    virt:hosts does not match it any more, and where a host that does not answer had guests that no
    other host has been heard to have since: once it is revoked they may be started elsewhere, and
    run twice.
    """
    if host in target.accepted(fleet.opts) or fleet.opts.get("order_masters"):
        answer = fleet.gather([host], "virt.running_names")[host]
        if answer.ok:
            running = sorted(map(str, answer.data or ()))
            if running:
                raise errors.OperationFailed(
                    f"{host} still runs {_listed(running)}: salt-run virt.evacuate {host}, or stop "
                    "them; force=True revokes its certificates all the same, as of a host that was "
                    "broken into, and other hosts may then start what it runs"
                )
            return
    _query_others(fleet, host)
    guest_names, last_heard = location_cache.unseen_guests(fleet.opts, host)
    if guest_names:
        raise errors.OperationFailed(
            f"{host} does not answer, and had {_listed(guest_names)} when it was last heard "
            f"({last_heard}): if "
            "it still runs them, other hosts may start them a second time; power it off, then "
            "call this with force=True"
        )


def _query_others(fleet: Fleet, host: str) -> None:
    """Asks the other hosts what they have now: a guest that moved away is known there from here
    on."""
    with contextlib.suppress(errors.NotFound):  # there is no hypervisor
        other_hosts = [candidate for candidate in fleet.hosts() if candidate != host]
        if other_hosts:
            find.locations(fleet, other_hosts)


def _listed(guests: list[str]) -> str:
    remaining = len(guests) - _SHOWN
    return ", ".join(guests[:_SHOWN]) + (f" and {remaining} more" if remaining > 0 else "")


def is_known(fleet: Fleet, host: str) -> bool:
    """Whether guests were ever made on the host, so that the master waits for it."""
    return host in shared_storage_check.guest_hosts(fleet.opts)
