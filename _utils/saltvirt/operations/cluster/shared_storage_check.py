"""Check with all hosts what one host may delete on shared storage."""

from __future__ import annotations

from typing import Any

from saltvirt.answers.calls import HostAnswer
from saltvirt.answers.guest_calls import STORAGE_USERS, StorageUsersRequest
from saltvirt.fleet import target
from saltvirt.fleet.authorization import Authorizations
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster.find import BELOW_SYNDIC
from saltvirt.pki.authority import crl
from saltvirt.pki.authority.store import CertificateStore


def unused_elsewhere(
    fleet: Fleet, host: str, file_locations: dict[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """Return (paths that no other host uses, {path: why it must stay}) for the shared paths in a
    purge plan of ``host``.

    A host that does not answer, or does not answer for a path, proves nothing. The same applies if
    a host was not asked, because ``virt:hosts`` no longer matches it or only a syndic knows it.
    """
    if not file_locations:
        return [], {}
    hosts = fleet.hosts()
    reasons: dict[str, list[str]] = {}
    unasked = [
        f"{other_host}: {reason}" for other_host, reason in unmatched(fleet.opts, hosts).items()
    ]
    unasked += [BELOW_SYNDIC] if fleet.opts.get("order_masters") else []
    for path in file_locations if unasked else ():
        reasons[path] = list(unasked)
    other_hosts = [other_host for other_host in hosts if other_host != host]
    request = StorageUsersRequest(file_locations)
    for answer in STORAGE_USERS.replies(fleet, other_hosts, request):
        for path in file_locations:
            reason = _retain_reason(answer, path)
            if reason:
                reasons.setdefault(path, []).append(f"{answer.host}: {reason}")
    retained = {path: "; ".join(sorted(reason)) for path, reason in reasons.items()}
    return sorted(set(file_locations) - set(reasons)), retained


def unmatched(opts: dict[str, Any], hosts: list[str]) -> dict[str, str]:
    """Return host to why it is not asked, of the accepted minions that once submitted a guest's
    key.

    A target with grains no longer matches a hypervisor if the master loses the cached grains. A
    host whose certificates were revoked is no longer a hypervisor and is not asked.
    """
    lost = guest_hosts(opts) - set(hosts)
    if not lost:
        return {}
    revoked = crl.record(CertificateStore(opts["pki_dir"]))["hosts"]
    lost = lost.intersection(target.accepted(opts)).difference(revoked)
    reason = (
        "virt:hosts does not match it, but guests were created on it; if it is no longer a "
        "hypervisor"
    )
    return {host: f"{reason}: salt-run virt.revoke {host}" for host in sorted(lost)}


def guest_hosts(opts: dict[str, Any]) -> set[str]:
    """Return the minions, accepted or not, that submitted a guest's key or were permitted to."""
    return Authorizations(opts).hosts() | KeyStore(opts).hosts()


def _retain_reason(answer: HostAnswer[dict[str, str | None]], path: str) -> str | None:
    """Return why a host's answer requires that a path stays; None if the host does not use it."""
    if not answer.ok:
        return answer.error
    return answer.get().get(path, "its answer does not include the path")
