"""What one host may delete on storage that others may have: when all of them said so."""

from __future__ import annotations

from typing import Any

from saltvirt.fleet import target
from saltvirt.fleet.answer import Answer
from saltvirt.fleet.authorization import Authorizations
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.find import BELOW
from saltvirt.pki.authority import crl
from saltvirt.pki.authority.store import Store


def elsewhere(fleet: Fleet, host: str, places: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """(paths that no other host uses, {path: why it must stay}) for the ``shared`` of a purge's
    plan on ``host``.

    A host that does not answer, or not to this, proves nothing; nor does it that one which
    ``virt:hosts`` lost, or which only a syndic knows, was not asked.
    """
    if not places:
        return [], {}
    hosts = fleet.hosts()
    why: dict[str, list[str]] = {}
    unasked = [f"{one}: {words}" for one, words in unmatched(fleet.opts, hosts).items()]
    unasked += [BELOW] if fleet.opts.get("order_masters") else []
    for path in places if unasked else ():
        why[path] = list(unasked)
    others = [one for one in hosts if one != host]
    for answer in fleet.ask(others, "virt.storage_users", {"places": places}):
        for path in places:
            words = _words(answer, path)
            if words:
                why.setdefault(path, []).append(f"{answer.host}: {words}")
    kept = {path: "; ".join(sorted(words)) for path, words in why.items()}
    return sorted(set(places) - set(why)), kept


def unmatched(opts: dict[str, Any], hosts: list[str]) -> dict[str, str]:
    """Host to why it is not asked, of the accepted minions that once handed in a guest's key.

    A target with grains loses a hypervisor when the master loses its cache of them. One whose
    certificates were revoked is none any more: nobody asks what it has.
    """
    lost = made_guests(opts) - set(hosts)
    if not lost:
        return {}
    revoked = crl.record(Store(opts["pki_dir"]))["hosts"]
    lost = lost.intersection(target.accepted(opts)).difference(revoked)
    why = (
        "virt:hosts does not match it, and guests were made on it; if it runs none and is no "
        "hypervisor any more"
    )
    return {host: f"{why}: salt-run virt.revoke {host}" for host in sorted(lost)}


def made_guests(opts: dict[str, Any]) -> set[str]:
    """The minions, accepted or not, that once handed in a guest's key or were to do so."""
    return Authorizations(opts).hosts() | KeyStore(opts).hosts()


def _words(answer: Answer, path: str) -> str | None:
    """Why one host's answer keeps a path; None when it says that nobody there uses it."""
    if not answer.ok:
        return answer.error
    if not isinstance(answer.data, dict) or path not in answer.data:
        return "it does not say who uses it"
    why: str | None = answer.data[path]
    return why
