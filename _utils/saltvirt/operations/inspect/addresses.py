"""List the addresses of a guest."""

from __future__ import annotations

from saltvirt.answers.guest_calls import NamedGuestRequest
from saltvirt.answers.inspect_calls import ADDRESSES
from saltvirt.answers.inspection import AddressInfo, GuestAddresses
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find
from saltvirt.operations.core.operation import Result
from saltvirt.placement import facts


def listing(fleet: Fleet, name: str) -> Result:
    """Return the addresses of a guest. If it is active where it was last seen, no other host is
    asked. Raises as find.locate and Fleet.call do."""
    host, answer = _ask(fleet, name)
    details = {
        "host": host,
        "state": answer.state,
        "addresses": [address.to_answer() for address in answer.addresses],
    }
    if not answer.addresses:
        return Result(name, f"{name} on {host} {_unknown_reason(answer)}", {}, details)
    rows = [["address", "MAC", "interface", "source"], *map(_row, answer.addresses)]
    comment = f"{name} on {host} has {_count(len(answer.addresses))}"
    return Result(name, comment, {}, {**details, "table": rows})


def _ask(fleet: Fleet, name: str) -> tuple[str, GuestAddresses]:
    host, request = find.cached_host(fleet, name), NamedGuestRequest(name)
    if host:
        reply = ADDRESSES.reply(fleet, host, request)
        if reply.ok and reply.get().state in facts.ACTIVE:
            return host, reply.get()
    host, _ = find.locate(fleet, name)
    return host, ADDRESSES.ask(fleet, host, request)


def _count(number: int) -> str:
    return "1 address" if number == 1 else f"{number} addresses"


def _unknown_reason(answer: GuestAddresses) -> str:
    if answer.state not in facts.ACTIVE:
        return f"is {answer.state} and has no address"
    agent = "its guest agent reports none" if answer.agent else "its guest agent is not connected"
    return f"has no known address: {agent}, and neither DHCP leases nor the ARP table have one"


def _row(info: AddressInfo) -> list[str]:
    prefix = "" if info.prefix is None else f"/{info.prefix}"
    return [info.address + prefix, info.mac, info.interface, ", ".join(info.sources)]
