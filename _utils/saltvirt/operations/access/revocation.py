"""Check whether the certificates of a hypervisor can be revoked."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from saltvirt import errors, units
from saltvirt.answers.guest_calls import RUNNING_NAMES, HostRequest
from saltvirt.fleet import target
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find, shared_storage_check
from saltvirt.operations.core.operation import Checked, Reasons
from saltvirt.operations.journal import location_cache
from saltvirt.pki.authority import crl

if TYPE_CHECKING:
    from saltvirt.pki.authority.store import CertificateStore

_SHOWN = 5


def refuse_running(fleet: Fleet, host: str) -> None:
    """Raise OperationFailed if the host's minion reports running guests, even if virt:hosts no
    longer matches the host; or if a host that does not answer had guests that no other host has
    reported since. After the revocation, other hosts can start these guests, which would then run
    twice."""
    if host in target.accepted(fleet.opts) or fleet.opts.get("order_masters"):
        answer = RUNNING_NAMES.reply(fleet, host, HostRequest())
        if answer.ok:
            running = sorted(answer.get())
            if running:
                raise errors.OperationFailed(
                    f"{host} still runs {_listed(running)}: salt-run virt.evacuate {host}, or stop "
                    "them; force=True revokes its certificates anyway, as of a host that was "
                    "compromised, and other hosts may then start its guests"
                )
            return
    _query_others(fleet, host)
    guest_names, last_heard = location_cache.unseen_guests(fleet.opts, host)
    if guest_names:
        raise errors.OperationFailed(
            f"{host} does not answer, and had {_listed(guest_names)} when it last answered "
            f"({last_heard}): if it still runs them, other hosts may start them a second time; "
            "power it off, then call this with force=True"
        )


def check(fleet: Fleet, store: CertificateStore, host: str, *, undo: bool, force: bool) -> Checked:
    """Return what ``virt.revoke`` would do, or every reason against it."""
    reasons = Reasons()
    with reasons:
        if undo:
            crl.require_revoked(store, host)
            return Checked(host, f"{host} would be admitted again")
        if not force:
            with reasons:
                refuse_running(fleet, host)
        count = crl.revocable(store, host, is_known(fleet, host))
        reasons.raise_first()
        revoked_count = units.pluralize(count, "certificate")
        comment = f"{revoked_count} of {host} would be revoked on every hypervisor"
        return Checked(host, comment, {"certificates": {"old": count, "new": 0}})
    return reasons.checked(host)


def _query_others(fleet: Fleet, host: str) -> None:
    """Query the other hosts, so that guests that have moved away are known to be there."""
    with contextlib.suppress(errors.NotFound):  # there is no hypervisor
        other_hosts = [candidate for candidate in fleet.hosts() if candidate != host]
        if other_hosts:
            find.locations(fleet, other_hosts)


def _listed(guests: list[str]) -> str:
    remaining = len(guests) - _SHOWN
    return ", ".join(guests[:_SHOWN]) + (f" and {remaining} more" if remaining > 0 else "")


def is_known(fleet: Fleet, host: str) -> bool:
    """Return whether guests were ever created on the host, so that the master waits for it."""
    return host in shared_storage_check.guest_hosts(fleet.opts)
