"""The use of CPUs, memory, disks and networks by hosts and guests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from saltvirt import errors, units
from saltvirt.answers.guest_calls import HostRequest
from saltvirt.answers.inspect_calls import USAGE
from saltvirt.answers.inspection import GuestUsage, HostUsage, Rates
from saltvirt.fleet.client import Fleet
from saltvirt.operations.inspect.listing import Row, with_failed
from saltvirt.placement import facts


def _total(*values: float | None) -> float:
    return sum(value or 0 for value in values)


# what the guests are sorted by, the largest first, except names
SORT: Mapping[str, Callable[[GuestUsage], float]] = {
    "cpu": lambda usage: usage.cpu_percent or 0,
    "memory": lambda usage: usage.memory_bytes,
    "disk": lambda usage: _total(usage.disk_read_bytes_s, usage.disk_written_bytes_s),
    "network": lambda usage: _total(usage.network_received_bytes_s, usage.network_sent_bytes_s),
    "name": lambda _usage: 0,
}
_RATES = ["disk read", "disk written", "net received", "net sent"]
# columns of hosts that a narrow terminal does not show, the first one first
_DROPPED = {name: {"drop": n} for n, name in enumerate(("CPUs", "memory", "allocated"))}


def key(sort: object) -> str:
    """Return the name of a key of SORT. Raises InvalidInput."""
    if not isinstance(sort, str) or sort not in SORT:
        raise errors.InvalidInput(f"sort must be {', '.join(SORT)}, not {units.short_repr(sort)}")
    return sort


def top(fleet: Fleet, host: str | None = None, sort: str = "cpu") -> dict[str, Any]:
    """Return the answer of the runner: a table of hosts, and one of guests that run. Raises
    NotFound, InvalidInput."""
    sort = key(sort)
    answers, failed = USAGE.gather(fleet, fleet.hosts(host), HostRequest())
    hosts = {name: usage.to_answer() for name, usage in answers.items()}
    hosts |= {name: {"error": reason} for name, reason in failed.items()}
    rows = _guest_rows(answers, sort)
    return {
        "top": {
            "title": f"use of {units.pluralize(len(answers), 'host')}",
            "table": _host_table(answers, failed),
            "columns": _DROPPED,
            "hosts": dict(sorted(hosts.items())),
        },
        "guests": {
            "title": _guests_title(len(rows), sort),
            "table": [["guest", "host", "CPU %", "memory", "memory used", *_RATES], *rows],
            "columns": {"memory used": {"drop": 0}},
        },
        **({"retcode": 1} if failed else {}),
    }


def _guests_title(number: int, sort: str) -> str:
    if not number:
        return "no guest is running"
    return f"{units.pluralize(number, 'running guest')}, by {sort}"


def _host_table(answers: Mapping[str, HostUsage], failed: Mapping[str, str]) -> list[Row]:
    rows: list[Row] = [
        ["host", "CPU %", "CPUs", "load", "memory", "memory used", "allocated", *_RATES]
    ]
    for name, usage in sorted(answers.items()):
        memory = (usage.memory_bytes, usage.memory_used_bytes, usage.memory_allocated_bytes)
        load = usage.load[0] if usage.load else None
        rows.append(
            [name, usage.cpu_percent, usage.cpus, load, *map(_size, memory), *_rates(usage)]
        )  # fmt: skip
    return with_failed(rows, failed)


def _guest_rows(answers: Mapping[str, HostUsage], sort: str) -> list[Row]:
    running = [
        (name, host, usage)
        for host, answer in answers.items()
        for name, usage in answer.guests.items()
        if usage.state in facts.ACTIVE
    ]
    running.sort(key=lambda guest: (-SORT[sort](guest[2]), guest[0], guest[1]))
    return [[name, host, *_guest_cells(usage)] for name, host, usage in running]


def _guest_cells(usage: GuestUsage) -> Row:
    memory = (usage.memory_bytes, usage.memory_used_bytes)
    return [usage.cpu_percent, *map(_size, memory), *_rates(usage)]


def _size(number: float | None) -> dict[str, float] | None:
    return None if number is None else {"bytes": number}


def _rates(usage: Rates) -> Row:
    rates = (
        usage.disk_read_bytes_s, usage.disk_written_bytes_s,
        usage.network_received_bytes_s, usage.network_sent_bytes_s,
    )  # fmt: skip
    return [None if rate is None else {"rate": rate} for rate in rates]
