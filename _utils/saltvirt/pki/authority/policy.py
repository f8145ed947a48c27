"""The master's configuration of certificates: ``virt:hosts`` and ``virt:pki``."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

from saltvirt import settings, units
from saltvirt.errors import InvalidInput
from saltvirt.pki.common import certs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from saltvirt.settings import Get

PILLAR = "pillar"
CSR = "csr"
_DNS = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]{1,63})*")
_WORD = re.compile(r"[^\x00-\x1f\x7f]{1,64}")
PARTS = ("country", "state", "locality", "organization")
_MAX_CLAIMED = 32
_LOOPBACK_NAMES = {"localhost", "localhost.localdomain", "127.0.0.1", "127.0.1.1", "::1"}


@dataclass(frozen=True)
class CertificatePolicy:
    """How certificates are issued, for which hosts, and for how many whole days."""

    hosts: object = None
    mode: str = PILLAR
    key: str = "ec"
    ca_name: str = "Salt Virt"
    ca_days: int = 3650
    days: int = 365
    domain: str | None = None
    names: dict[str, list[str]] = field(default_factory=dict)
    trust_grains: bool = False
    subject: dict[str, str] = field(default_factory=dict)


def policy(get: Get) -> CertificatePolicy:
    """The CertificatePolicy of a master. get: a function of (key, default) over its configuration.

    Raises InvalidInput that names an invalid setting.
    """

    def text(name: str, default: str | None = None) -> str | None:
        return settings.text(get, f"pki:{name}", default)

    def days(name: str, default: int) -> int:
        return settings.integer(get, f"pki:{name}", default, maximum=36500)

    return CertificatePolicy(
        hosts=settings.option(get, "hosts"),
        mode=settings.choice(get, "pki:mode", PILLAR, (PILLAR, CSR)),
        key=settings.choice(get, "pki:key", "ec", certs.KINDS),
        ca_name=word("ca_name", text("ca_name", "Salt Virt")),
        ca_days=days("ca_days", 3650),
        days=days("days", 365),
        domain=_name("domain", text("domain")),
        names=_names(settings.mapping(get, "pki:names")),
        trust_grains=settings.boolean(get, "pki:trust_grains", False),
        subject={part: word(part, text(part)) for part in PARTS if text(part)},
    )


def word(name: str, value: object) -> str:
    """Check a part of a distinguished name."""
    text = str(value)
    if not _WORD.fullmatch(text):
        shown = units.short_repr(text)
        raise InvalidInput(f"virt:pki:{name} is {shown}: use 1 to 64 printable characters")
    if name == "country" and not re.fullmatch("[A-Za-z]{2}", text):
        raise InvalidInput(f"virt:pki:country is {text!r}: use a two-letter code of ISO 3166")
    return text


def valid_name(name: object) -> TypeGuard[str]:
    """Whether it is a DNS name or an IP address."""
    if not isinstance(name, str):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return len(name) <= 253 and bool(_DNS.fullmatch(name))
    return True


def same_name(name: str) -> str:
    """The name in the form that TLS compares: lower case, and addresses in their canonical form."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()


def _name(setting: str, value: object) -> str | None:
    if value is not None and not valid_name(value):
        shown = units.short_repr(value)
        raise InvalidInput(f"virt:pki:{setting} is {shown}: use a DNS name or an IP address")
    return value


def _names(value: Mapping[Any, Any]) -> dict[str, list[str]]:
    names_by_host = {}
    for host, names in value.items():
        host_names = [names] if isinstance(names, str) else names
        if not isinstance(host_names, (list, tuple)):
            raise settings.invalid(f"pki:names:{host}", names, "a list of names")
        checked = [_name(f"names:{host}", name) for name in host_names]
        names_by_host[str(host)] = [name for name in checked if name is not None]
    return names_by_host


def derived_names(policy: CertificatePolicy, host: str) -> list[str]:
    """The names that derive from a minion id: the short name, and the one in
    ``virt:pki:domain``."""
    if _is_address(host):
        return []
    names = [host.partition(".")[0]]
    if policy.domain and "." not in host:
        names.append(f"{host}.{policy.domain}")
    return names


def claimed_names(grains: Mapping[str, Any]) -> list[Any]:
    """A limited number of the names and addresses that a minion reports, of any type."""
    claimed = [grains.get(word) for word in ("fqdn_ip4", "fqdn_ip6")]
    claimed = [
        address
        for addresses in claimed
        if isinstance(addresses, (list, tuple))
        for address in addresses
    ]
    return [grains.get("fqdn"), grains.get("host"), *claimed[:_MAX_CLAIMED]]


def valid_names(names: Iterable[object]) -> list[str]:
    """The names for which a certificate can be issued, without duplicates and without names of
    every machine, such as localhost."""
    valid = [name for name in names if valid_name(name) and name not in _LOOPBACK_NAMES]
    return list(dict.fromkeys(valid))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
