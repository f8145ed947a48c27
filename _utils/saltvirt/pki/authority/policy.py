"""What the master's configuration says about certificates: ``virt:hosts`` and ``virt:pki``."""

import ipaddress
import re
from dataclasses import dataclass, field

from saltvirt import settings
from saltvirt.errors import InvalidInput
from saltvirt.pki.common import certs

PILLAR = "pillar"
CSR = "csr"
_DNS = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]{1,63})*")
_WORD = re.compile(r"[^\x00-\x1f\x7f]{1,64}")
PARTS = ("country", "state", "locality", "organization")


@dataclass(frozen=True)
class Policy:
    """How certificates are made, for whom, and for how long. Days are whole days."""

    hosts: object = None
    mode: str = PILLAR
    key: str = "ec"
    ca_name: str = "Salt Virt"
    ca_days: int = 3650
    days: int = 365
    domain: str | None = None
    names: dict = field(default_factory=dict)
    trust_grains: bool = False
    subject: dict = field(default_factory=dict)


def policy(get):
    """The Policy of a master. get: a function of (key, default) over its configuration.

    Raises InvalidInput, naming the setting, for what cannot be meant.
    """

    def option(name, default=None):
        return settings.option(get, f"pki:{name}", default)

    mode = _one_of("mode", option("mode", PILLAR), (PILLAR, CSR))
    return Policy(
        hosts=settings.option(get, "hosts"),
        mode=mode,
        key=_one_of("key", option("key", "ec"), certs.KINDS),
        ca_name=word("ca_name", option("ca_name", "Salt Virt")),
        ca_days=_days("ca_days", option("ca_days", 3650)),
        days=_days("days", option("days", 365)),
        domain=_name("domain", option("domain")),
        names=_names(option("names", {})),
        trust_grains=bool(option("trust_grains", False)),
        subject={part: word(part, option(part)) for part in PARTS if option(part)},
    )


def _one_of(name, value, allowed):
    if value not in allowed:
        raise InvalidInput(f"virt:pki:{name} is {value!r}: use one of {', '.join(allowed)}")
    return value


def _days(name, value):
    if isinstance(value, bool) or not str(value).isdigit() or not 1 <= int(value) <= 36500:
        raise InvalidInput(f"virt:pki:{name} is {value!r}: use whole days, 1 to 36500")
    return int(value)


def word(name, value):
    """A part of a distinguished name."""
    text = str(value)
    if not _WORD.fullmatch(text):
        raise InvalidInput(f"virt:pki:{name} is {text!r}: use 1 to 64 printable characters")
    if name == "country" and not re.fullmatch("[A-Za-z]{2}", text):
        raise InvalidInput(f"virt:pki:country is {text!r}: use the two letters of ISO 3166")
    return text


def valid_name(name):
    """True for a DNS name or an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return isinstance(name, str) and len(name) <= 253 and bool(_DNS.fullmatch(name))
    return True


def _name(setting, value):
    if value is not None and not valid_name(value):
        raise InvalidInput(f"virt:pki:{setting} is {value!r}: use a DNS name or an IP address")
    return value


def _names(value):
    if not isinstance(value, dict):
        raise InvalidInput("virt:pki:names must map a host's minion id to a list of names")
    found = {}
    for host, names in value.items():
        several = [names] if isinstance(names, str) else names
        found[str(host)] = [_name(f"names:{host}", str(name)) for name in several]
    return found


def wanted_names(policy, host, grains):
    """The names and addresses that the host's certificates must be for.

    Its minion id, the short name, the name in ``virt:pki:domain``, and those of
    ``virt:pki:names``. grains: what the minion says of itself; used only where the
    master set ``virt:pki:trust_grains``, and only where it is no other host's name.
    """
    found = [host, *policy.names.get(host, [])]
    address = _is_address(host)
    if not address:
        found.append(host.partition(".")[0])
        if policy.domain and "." not in host:
            found.append(f"{host}.{policy.domain}")
    if policy.trust_grains:
        found += [grains.get("fqdn"), grains.get("host"), *grains.get("fqdn_ip4", [])]
        found += grains.get("fqdn_ip6", [])
    unwanted = {"localhost", "localhost.localdomain", "127.0.0.1", "127.0.1.1", "::1"}
    valid = [name for name in found if name and valid_name(name) and name not in unwanted]
    return list(dict.fromkeys(valid))


def _is_address(text):
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
