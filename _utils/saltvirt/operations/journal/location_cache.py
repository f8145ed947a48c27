"""Cache where guests were last seen, so that this host is asked first, and all others only if the
guest is not there. A cached location is never trusted: the host is asked.

The number of files is fixed and the files are small; guests whose names share a file replace each
other. A file that cannot be read or written is a missing entry, not an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt.placement.facts import ACTIVE
from saltvirt.system import atomic_file

FILES = 16384
# maximum size of the record of a host
_MAX_HOST_BYTES = 1 << 20
# maximum size of the entry of a guest
_MAX_HINT_BYTES = 2048


def _path(opts: dict[str, Any], name: str) -> Path:
    number = int.from_bytes(hashlib.sha256(name.encode(errors="replace")).digest(), "big")
    return Path(opts["cachedir"]) / "virt" / "seen" / f"{number % FILES}"


def load(opts: dict[str, Any], name: str) -> str | None:
    """Return the host where the guest was last seen, or None."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with _path(opts, name).open("rb") as file:
            entry = json.loads(file.read(_MAX_HINT_BYTES))
        if isinstance(entry, list) and len(entry) == 2 and entry[0] == name:
            return entry[1] if isinstance(entry[1], str) else None
    return None


def store(opts: dict[str, Any], name: str, host: str) -> None:
    """Record that the guest was seen on the host."""
    if load(opts, name) == host:
        return
    with contextlib.suppress(OSError):
        _write(_path(opts, name), json.dumps([name, host]))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = atomic_file.unique_part(path)
    atomic_file.write(path, text.encode(), mode=0o644, durable=False, part=part)


def forget(opts: dict[str, Any], name: str) -> None:
    """Forget a guest that was removed."""
    if load(opts, name) is not None:
        with contextlib.suppress(OSError):
            _path(opts, name).unlink()


def _host_path(opts: dict[str, Any], host: str) -> Path:
    return Path(opts["cachedir"]) / "virt" / "seen" / _file_of(host)


def _file_of(host: str) -> str:
    return f"host-{hashlib.sha256(str(host).encode(errors='replace')).hexdigest()}"


@dataclass(frozen=True)
class _HostRecord:
    """A host's last answer. guests: names. active, off: those known to be in such a state.
    heard_at_s: the time of the answer in seconds since 1970."""

    host: str = ""
    guests: frozenset[str] = frozenset()
    active: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    heard_at_s: float = 0


def store_host(opts: dict[str, Any], host: str, guests: Mapping[str, str]) -> None:
    """Record that the host has just reported these guests. guests: names to states."""
    active = sorted(name for name, state in guests.items() if state in ACTIVE)
    path, text = _host_path(opts, host), json.dumps([host, sorted(guests), active])
    if len(text) > _MAX_HOST_BYTES:
        return
    with contextlib.suppress(OSError):
        if path.exists() and path.read_text(encoding="utf-8") == text:
            os.utime(path)
            return
        _write(path, text)


def unseen_guests(opts: dict[str, Any], host: str) -> tuple[list[str], str]:
    """Return (guests of the host's last answer that no other host has reported since, the time of
    that answer); ([], "") if the host never answered. An earlier answer of another host does not
    count: the guest may have moved from there. Neither does a definition of a guest that is off
    there and was active on this host: a migration may have left it."""
    last = _read_host(_host_path(opts, host))
    remaining = set(last.guests)
    for path in _host_path(opts, host).parent.glob("host-*") if remaining else ():
        record = _read_host(path)
        if record.host != host and record.heard_at_s > last.heard_at_s:
            remaining -= record.active | (record.guests & last.off)
    return sorted(remaining), _format_time(last.heard_at_s)


def reported_hosts(opts: dict[str, Any]) -> dict[str, set[str]]:
    """Return guests to the hosts that had them in their last answers."""
    hosts: dict[str, set[str]] = {}
    for path in _host_path(opts, "").parent.glob("host-*"):
        record = _read_host(path)
        for name in record.guests:
            hosts.setdefault(name, set()).add(record.host)
    return hosts


def _read_host(path: Path) -> _HostRecord:
    """Return the record in the file, or an empty one."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with path.open("rb") as file:
            mtime_s = os.fstat(file.fileno()).st_mtime
            data = json.loads(file.read(_MAX_HOST_BYTES + 1))
        if isinstance(data, list) and len(data) == 3 and path.name == _file_of(data[0]):
            guests = _names(data[1])
            active = _names(data[2])
            return _HostRecord(data[0], guests, active, guests - active, mtime_s)
    return _HostRecord()


def _names(value: object) -> frozenset[str]:
    values = value if isinstance(value, list) else []
    return frozenset(name for name in values if isinstance(name, str))


def _format_time(timestamp_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(timestamp_s)) if timestamp_s else ""


def with_last_seen(
    opts: dict[str, Any],
    listing: dict[str, Any],
    states: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """Return the answer of virt.query or virt.list with ``last_seen`` for each host that did not
    answer: ``guests``, the names in its last answer that no other host reports now, and ``at``, the
    time of that answer. states: host to its guests and their states; None: as in virt.query."""
    states = _states_of(listing) if states is None else states
    elsewhere: set[str] = set().union(*states.values())
    for host, guests in states.items():
        store_host(opts, host, guests)
    return {
        host: _with_last_seen(opts, host, host_entry, elsewhere)
        for host, host_entry in listing.items()
    }


def _states_of(listing: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return host to its guests and their states from an answer of virt.query."""
    return {
        host: {name: str(guest.get("state")) for name, guest in host_entry["vm_info"].items()}
        for host, host_entry in listing.items()
        if isinstance(host_entry, dict) and isinstance(host_entry.get("vm_info"), dict)
    }


def _with_last_seen(opts: dict[str, Any], host: str, host_entry: Any, elsewhere: set[str]) -> Any:
    if not isinstance(host_entry, dict) or set(host_entry) != {"error"}:
        return host_entry
    names, heard_at = unseen_guests(opts, host)
    missing = sorted(set(names) - elsewhere)
    return (
        {**host_entry, "last_seen": {"guests": missing, "at": heard_at}} if missing else host_entry
    )


def last_seen(opts: dict[str, Any], name: str, hosts: Iterable[str]) -> tuple[str, str] | None:
    """Return (which of the hosts had the guest in its last answer, the time of that answer), or
    None."""
    records = (_read_host(_host_path(opts, host)) for host in hosts)
    heard_at_s, host = max(
        ((record.heard_at_s, record.host) for record in records if name in record.guests),
        default=(0, ""),
    )
    return (host, _format_time(heard_at_s)) if host else None
