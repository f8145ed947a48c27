"""The addresses of a guest, with all sources that know them."""

from __future__ import annotations

from saltvirt.answers.inspection import AddressInfo, GuestAddresses
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import addresses, lookup

AGENT = "agent"


def read(conn: libvirt.virConnect, name: str) -> GuestAddresses:
    """Return the addresses of a guest. Raises NotFound."""
    dom = lookup.lookup(conn, name)
    state = lookup.state(dom)
    if not dom.isActive():
        return GuestAddresses(state, False, ())
    return GuestAddresses(state, addresses.has_agent(dom), combine(addresses.by_source(dom)))


def combine(answers: list[addresses.Addresses]) -> tuple[AddressInfo, ...]:
    """Return each address once, with all of its sources: IPv4 first, link-local ones last."""
    combined: dict[tuple[str, str], AddressInfo] = {}
    for mac, interface in (item for answer in answers for item in answer.items()):
        for entry in interface["addresses"]:
            key = mac.lower(), entry["address"]
            info = AddressInfo(
                entry["address"], entry["prefix"] or None, entry["type"], key[0],
                interface["interface"], (interface["source"],),
            )  # fmt: skip
            combined[key] = _merge(combined[key], info) if key in combined else info
    return tuple(sorted(combined.values(), key=_order))


def _merge(before: AddressInfo, info: AddressInfo) -> AddressInfo:
    """Return the address with the sources of both. The agent knows the name in the guest."""
    named = info if AGENT in info.sources else before
    sources = tuple(dict.fromkeys((*before.sources, *info.sources)))
    return AddressInfo(
        before.address, before.prefix or info.prefix, before.type, before.mac, named.interface,
        sources,
    )  # fmt: skip


def _order(info: AddressInfo) -> tuple[bool, bool, str]:
    return addresses.is_link_local(info.address), info.type != "ipv4", info.interface
