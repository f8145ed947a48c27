"""Where guests were last seen: so that one host is asked first, and the others only when a guest is
not there. Never the truth: whoever goes by a hint asks that host.

A fixed number of small files; guests whose names fall on the same one take turns. What cannot be
read or written is no hint, and no error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt.placement.facts import ACTIVE

FILES = 16384
# of one host: what is longer is no list of guests
_MAX_HOST_BYTES = 1 << 20
# longer than an entry ever is: what is not ours is not read
_MAX_HINT_BYTES = 2048


def _path(opts: dict[str, Any], name: str) -> Path:
    number = int.from_bytes(hashlib.sha256(name.encode(errors="replace")).digest(), "big")
    return Path(opts["cachedir"]) / "virt" / "seen" / f"{number % FILES}"


def load(opts: dict[str, Any], name: str) -> str | None:
    """The host where the guest was last seen, or None."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with _path(opts, name).open("rb") as file:
            entry = json.loads(file.read(_MAX_HINT_BYTES))
        if isinstance(entry, list) and len(entry) == 2 and entry[0] == name:
            return entry[1] if isinstance(entry[1], str) else None
    return None


def store(opts: dict[str, Any], name: str, host: str) -> None:
    """The guest was seen on the host."""
    if load(opts, name) == host:
        return
    path = _path(opts, name)
    part = path.with_name(f".{secrets.token_hex()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            part.write_text(json.dumps([name, host]), encoding="utf-8")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def forget(opts: dict[str, Any], name: str) -> None:
    """The guest is nowhere any more."""
    if load(opts, name) is not None:
        with contextlib.suppress(OSError):
            _path(opts, name).unlink()


def _host_path(opts: dict[str, Any], host: str) -> Path:
    return Path(opts["cachedir"]) / "virt" / "seen" / _file_of(host)


def _file_of(host: str) -> str:
    return f"host-{hashlib.sha256(str(host).encode(errors='replace')).hexdigest()}"


@dataclass(frozen=True)
class _HostRecord:
    """What a host said. guests: names. active, off: those of them that are known to have been so.
    at: when it said that, in seconds since 1970."""

    host: str = ""
    guests: frozenset[str] = frozenset()
    active: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    heard_at_s: float = 0


def store_host(opts: dict[str, Any], host: str, guests: Mapping[str, str]) -> None:
    """The host has these guests, by its own word, now. guests: names to states."""
    active = sorted(name for name, state in guests.items() if state in ACTIVE)
    path, text = _host_path(opts, host), json.dumps([host, sorted(guests), active])
    if len(text) > _MAX_HOST_BYTES:
        return
    with contextlib.suppress(OSError):
        if path.exists() and path.read_text(encoding="utf-8") == text:
            os.utime(path)
            return
        part = path.with_name(f".{secrets.token_hex()}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def unseen_guests(opts: dict[str, Any], host: str) -> tuple[list[str], str]:
    """(the guests that the host had when it was last heard and that no other host was heard to have
    since, when that was); ([], "") of one that never was. What another host had before is no sign:
    the guest may have moved from there. Nor is a definition of a guest there that is off, where
    this host had the guest active: it may be what a migration has left."""
    last = _read_host(_host_path(opts, host))
    remaining = set(last.guests)
    for path in _host_path(opts, host).parent.glob("host-*") if remaining else ():
        record = _read_host(path)
        if record.host != host and record.heard_at_s > last.heard_at_s:
            remaining -= record.active | (record.guests & last.off)
    return sorted(remaining), _format_time(last.heard_at_s)


def _read_host(path: Path) -> _HostRecord:
    """What is in a file; nothing of what is none. An earlier version wrote no states."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with path.open("rb") as file:
            mtime_s = os.fstat(file.fileno()).st_mtime
            data = json.loads(file.read(_MAX_HOST_BYTES + 1))
        if isinstance(data, list) and len(data) in (2, 3) and path.name == _file_of(data[0]):
            guests = _names(data[1])
            if len(data) == 2:
                return _HostRecord(data[0], guests, heard_at_s=mtime_s)
            active = _names(data[2])
            return _HostRecord(data[0], guests, active, guests - active, mtime_s)
    return _HostRecord()


def _names(value: object) -> frozenset[str]:
    values = value if isinstance(value, list) else []
    return frozenset(name for name in values if isinstance(name, str))


def _format_time(timestamp_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(timestamp_s)) if timestamp_s else ""


def with_last_seen(opts: dict[str, Any], listing: dict[str, Any]) -> dict[str, Any]:
    """What virt.query has told, and with each host that did not answer ``last_seen``: ``guests``,
    the names of those that it had when it was last heard and that no other host has now, and
    ``at``, when that was."""
    states = {
        host: {name: str(guest.get("state")) for name, guest in host_entry["vm_info"].items()}
        for host, host_entry in listing.items()
        if isinstance(host_entry, dict) and isinstance(host_entry.get("vm_info"), dict)
    }
    elsewhere: set[str] = set().union(*states.values())
    for host, guests in states.items():
        store_host(opts, host, guests)
    return {
        host: _with_last_seen(opts, host, host_entry, elsewhere)
        for host, host_entry in listing.items()
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
    """(which of the hosts had the guest when it was last heard, when that was), or None."""
    records = (_read_host(_host_path(opts, host)) for host in hosts)
    heard_at_s, host = max(
        ((record.heard_at_s, record.host) for record in records if name in record.guests),
        default=(0, ""),
    )
    return (host, _format_time(heard_at_s)) if host else None
