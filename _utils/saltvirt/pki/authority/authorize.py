"""Decide who may have certificates: only hosts that the master's configuration names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import salt.utils.minions

from saltvirt.errors import PkiError
from saltvirt.fleet import target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from saltvirt.pki.authority.policy import CertificatePolicy

log = logging.getLogger(__name__)
# these match data that the minion sends, so a guest could claim it
_CLAIMED = {
    **{"G": "grains", "P": "grains", "I": "pillar", "J": "pillar"},
    **{"S": "addresses", "T": "resources", "M": "resources"},
}


def allowed(opts: Mapping[str, Any], policy: CertificatePolicy, host: str) -> bool:
    """Whether ``virt:hosts`` matches the host and its key is accepted.

    opts: the master's configuration. A minion of which the master has no data does not match. Every
    refusal is logged with advice; the log contains nothing that the minion sent except its id,
    which Salt has verified.
    """
    try:
        expression = expand(policy, opts)
    except PkiError as exc:
        log.error("no libvirt certificates for %s: %s", host, exc)
        return False
    if host in resolve(opts, expression):
        return True
    log.warning(
        "no libvirt certificates for %s: virt:hosts (%s) in the master's configuration "
        "does not match it; add it there if it is a hypervisor",
        host,
        expression,
    )
    return False


def expand(policy: CertificatePolicy, opts: Mapping[str, Any]) -> str:
    """The compound expression of ``virt:hosts``.

    Raises PkiError if nothing is set, or if the expression depends on data that minions report
    about themselves and ``virt:pki:trust_grains`` does not allow that.
    """
    if not policy.hosts:
        raise PkiError(
            "virt:hosts is not set in the master's configuration, so no minion is a "
            "hypervisor; set it, e.g. virt: {hosts: 'L@hv1,hv2'}"
        )
    text = policy.hosts
    if not isinstance(text, str):
        raise PkiError(f"virt:hosts must be a compound target, not {text!r}")
    claimed = sorted({_CLAIMED[engine] for engine in _engines(text, opts) if engine in _CLAIMED})
    if claimed and not policy.trust_grains:
        raise PkiError(
            f"virt:hosts ({text}) matches {' and '.join(claimed)}, which a minion reports about "
            "itself, so a guest could claim to be a hypervisor; name the hosts by id, list or "
            "nodegroup, or accept the risk with virt: {pki: {trust_grains: True}}"
        )
    return text


def _engines(
    text: str, opts: Mapping[str, Any], visited: tuple[str, ...] = ()
) -> Iterator[str | None]:
    """The letters of the matchers that the expression uses, with nodegroups expanded; None for a
    word without a matcher."""
    for word in text.split():
        info = salt.utils.minions.parse_target(word)
        if info["engine"] == "N" and info["pattern"] not in visited:
            group = opts.get("nodegroups", {}).get(info["pattern"], "")
            expression = " ".join(group) if isinstance(group, (list, tuple)) else str(group)
            yield from _engines(expression, opts, (*visited, info["pattern"]))
        yield info["engine"]


def resolve(opts: Mapping[str, Any], expression: str) -> set[str]:
    """The accepted minions that the expression matches, according to the master's own data.

    A resource of Salt 3008 is no minion: any minion can register one under any name.
    """
    return set(target.hosts(opts, expression))
