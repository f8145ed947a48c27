"""Who may have certificates: only whom the master's configuration names."""

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
# what these look at is sent by the minion itself, so a guest could claim it
_CLAIMED = {
    **{"G": "grains", "P": "grains", "I": "pillar", "J": "pillar"},
    **{"S": "addresses", "T": "resources", "M": "resources"},
}


def allowed(opts: Mapping[str, Any], policy: CertificatePolicy, host: str) -> bool:
    """True when ``virt:hosts`` names the host and its key is accepted.

    opts: the master's configuration. Never greedy: a minion that the master knows
    nothing of does not match. Every refusal is logged with what to do; the log says
    nothing that the minion sent but its id, which Salt verified.
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

    Raises PkiError when nothing is set, or when it trusts what minions say of
    themselves and ``virt:pki:trust_grains`` does not allow that.
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
            f"virt:hosts ({text}) asks for {' and '.join(claimed)}, which every minion sends "
            "itself, so a guest could claim to be a hypervisor; name the hosts by id, list "
            "or nodegroup, or accept the risk with virt: {pki: {trust_grains: True}}"
        )
    return text


def _engines(
    text: str, opts: Mapping[str, Any], visited: tuple[str, ...] = ()
) -> Iterator[str | None]:
    """The letters of the matchers that the expression uses, nodegroups expanded; None: of a word
    that uses none."""
    for word in text.split():
        info = salt.utils.minions.parse_target(word)
        if info["engine"] == "N" and info["pattern"] not in visited:
            group = opts.get("nodegroups", {}).get(info["pattern"], "")
            expression = " ".join(group) if isinstance(group, (list, tuple)) else str(group)
            yield from _engines(expression, opts, (*visited, info["pattern"]))
        yield info["engine"]


def resolve(opts: Mapping[str, Any], expression: str) -> set[str]:
    """The accepted minions that the expression matches, by the master's own knowledge.

    What Salt 3008 calls a resource is none: any minion registers it under any name.
    """
    return set(target.hosts(opts, expression))
