"""Which guests this master moved away from a host in maintenance: written down before they leave.

The host keeps their names, too, but what it names decides nothing: only a guest that this master
moved away from it is brought back to it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saltvirt.fleet import private


def _folder(opts: dict[str, Any]) -> Path:
    return Path(opts["cachedir"]) / "virt" / "away"


def _path(opts: dict[str, Any], host: str) -> Path:
    return _folder(opts) / host


def of(opts: dict[str, Any], host: str) -> set[str]:
    """Their names, as a set."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return set(json.loads(_path(opts, host).read_text(encoding="utf-8")))
    return set()


def keep(opts: dict[str, Any], host: str, guests: Iterable[str] | None) -> None:
    """These are away now, and no others."""
    if guests:
        private.write(str(_path(opts, host)), json.dumps(sorted(guests)))
    else:
        _path(opts, host).unlink(missing_ok=True)


def forget(opts: dict[str, Any], name: str) -> None:
    """The guest is gone: another one of its name is brought back to no host."""
    for path in _folder(opts).glob("[!.]*"):
        known = of(opts, path.name)
        if name in known:
            keep(opts, path.name, known - {name})
