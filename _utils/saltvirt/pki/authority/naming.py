"""The names of hypervisors, for which their certificates are issued.

A name never belongs to two hosts: a short name that two ids share, or that is the id of another
host, is not used, unless ``virt:pki:names`` assigns it to a host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.pki.authority import policy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from saltvirt.pki.authority.policy import CertificatePolicy

same = policy.same_name


class Names:
    """The names of all hypervisors. rules: the policy. hosts: the ids of all current and former
    hypervisors; revoked: those whose certificates are revoked."""

    def __init__(
        self, rules: CertificatePolicy, hosts: Iterable[str], revoked: Collection[str] = ()
    ) -> None:
        self._rules = rules
        self._ids: dict[str, set[str]] = {}
        self._configured: dict[str, set[str]] = {}
        self._derived: dict[str, set[str]] = {}
        for host in {*hosts, *rules.names}:
            _add(self._ids, [host], host)
            _add(self._configured, rules.names.get(host, []), host)
            if host not in revoked:
                _add(self._derived, policy.derived_names(rules, host), host)

    def for_host(self, host: str, grains: Mapping[str, Any] | None = None) -> list[str]:
        """The host's names, its id first; none if another id differs from it in case only.

        grains: what the minion reports about itself; used only if ``virt:pki:trust_grains`` is set.
        """
        if self._other_owners(host, host, self._ids):
            return []
        configured = policy.valid_names(self._rules.names.get(host, []))
        names = [
            host,
            *(name for name in configured if not self._other_owners(host, name, self._ids)),
        ]
        extra = policy.derived_names(self._rules, host)
        if self._rules.trust_grains:
            extra += policy.claimed_names(grains or {})
        claims = (self._ids, self._configured, self._derived)
        for name in policy.valid_names(extra):
            if not any(self._other_owners(host, name, owners) for owners in claims):
                names.append(name)
        return policy.valid_names(names)

    def owners(self, host: str, name: str) -> list[str]:
        """The other hosts with this id or configured name, sorted."""
        owners = self._other_owners(host, name, self._ids) | self._other_owners(
            host, name, self._configured
        )
        return sorted(owners)

    @staticmethod
    def _other_owners(host: str, name: str, owners: Mapping[str, set[str]]) -> set[str]:
        """The other hosts that have the name."""
        return owners.get(same(name), set()) - {host}


def _add(owners: dict[str, set[str]], names: Iterable[Any], host: str) -> None:
    for name in policy.valid_names(names):
        owners.setdefault(same(name), set()).add(host)
