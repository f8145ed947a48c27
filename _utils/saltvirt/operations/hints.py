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
_MOST_OF_HOST = 1 << 20
# longer than an entry ever is: what is not ours is not read
_MOST = 2048


def _path(opts: dict[str, Any], name: str) -> Path:
    number = int.from_bytes(hashlib.sha256(name.encode(errors="replace")).digest(), "big")
    return Path(opts["cachedir"]) / "virt" / "seen" / f"{number % FILES}"


def of(opts: dict[str, Any], name: str) -> str | None:
    """The host where the guest was last seen, or None."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with _path(opts, name).open("rb") as file:
            found = json.loads(file.read(_MOST))
        if isinstance(found, list) and len(found) == 2 and found[0] == name:
            return found[1] if isinstance(found[1], str) else None
    return None


def keep(opts: dict[str, Any], name: str, host: str) -> None:
    """The guest was seen on the host."""
    if of(opts, name) == host:
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
    if of(opts, name) is not None:
        with contextlib.suppress(OSError):
            _path(opts, name).unlink()


def _host_path(opts: dict[str, Any], host: str) -> Path:
    return Path(opts["cachedir"]) / "virt" / "seen" / _file_of(host)


def _file_of(host: str) -> str:
    return f"host-{hashlib.sha256(str(host).encode(errors='replace')).hexdigest()}"


@dataclass(frozen=True)
class _Heard:
    """What a host said. guests: names. active, off: those of them that are known to have been so.
    at: when it said that, in seconds since 1970."""

    host: str = ""
    guests: frozenset[str] = frozenset()
    active: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    at: float = 0


def heard(opts: dict[str, Any], host: str, guests: Mapping[str, str]) -> None:
    """The host has these guests, by its own word, now. guests: names to states."""
    active = sorted(name for name, state in guests.items() if state in ACTIVE)
    path, text = _host_path(opts, host), json.dumps([host, sorted(guests), active])
    if len(text) > _MOST_OF_HOST:
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


def guests_left(opts: dict[str, Any], host: str) -> tuple[list[str], str]:
    """(the guests that the host had when it was last heard and that no other host was heard to have
    since, when that was); ([], "") of one that never was. What another host had before is no sign:
    the guest may have moved from there. Nor is a definition of a guest there that is off, where
    this host had the guest active: it may be what a migration has left."""
    last = _record(_host_path(opts, host))
    left = set(last.guests)
    for path in _host_path(opts, host).parent.glob("host-*") if left else ():
        other = _record(path)
        if other.host != host and other.at > last.at:
            left -= other.active | (other.guests & last.off)
    return sorted(left), _shown(last.at)


def _record(path: Path) -> _Heard:
    """What is in a file; nothing of what is none. An earlier version wrote no states."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with path.open("rb") as file:
            when = os.fstat(file.fileno()).st_mtime
            found = json.loads(file.read(_MOST_OF_HOST + 1))
        if isinstance(found, list) and len(found) in (2, 3) and path.name == _file_of(found[0]):
            guests = _names(found[1])
            if len(found) == 2:
                return _Heard(found[0], guests, at=when)
            active = _names(found[2])
            return _Heard(found[0], guests, active, guests - active, when)
    return _Heard()


def _names(value: object) -> frozenset[str]:
    several = value if isinstance(value, list) else []
    return frozenset(name for name in several if isinstance(name, str))


def _shown(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at)) if at else ""


def with_last_seen(opts: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """What virt.query has told, and with each host that did not answer ``last_seen``: ``guests``,
    the names of those that it had when it was last heard and that no other host has now, and
    ``at``, when that was."""
    has = {
        host: {name: str(one.get("state")) for name, one in about["vm_info"].items()}
        for host, about in told.items()
        if isinstance(about, dict) and isinstance(about.get("vm_info"), dict)
    }
    elsewhere: set[str] = set().union(*has.values())
    for host, guests in has.items():
        heard(opts, host, guests)
    return {host: _with_last_seen(opts, host, about, elsewhere) for host, about in told.items()}


def _with_last_seen(opts: dict[str, Any], host: str, about: Any, elsewhere: set[str]) -> Any:
    if not isinstance(about, dict) or set(about) != {"error"}:
        return about
    names, at = guests_left(opts, host)
    missing = sorted(set(names) - elsewhere)
    return {**about, "last_seen": {"guests": missing, "at": at}} if missing else about


def last_seen(opts: dict[str, Any], name: str, hosts: Iterable[str]) -> tuple[str, str] | None:
    """(which of the hosts had the guest when it was last heard, when that was), or None."""
    known = (_record(_host_path(opts, host)) for host in hosts)
    at, host = max(((one.at, one.host) for one in known if name in one.guests), default=(0, ""))
    return (host, _shown(at)) if host else None
