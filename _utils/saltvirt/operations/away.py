"""Which guests this master moved away from a host in maintenance: written down before they leave.

The host keeps their names, too, but what it names decides nothing: only a guest that this master
moved away from it is brought back to it.
"""

import contextlib
import json
from pathlib import Path

from saltvirt.fleet import private


def _folder(opts):
    return Path(opts["cachedir"]) / "virt" / "away"


def _path(opts, host):
    return _folder(opts) / host


def of(opts, host):
    """Their names, as a set."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return set(json.loads(_path(opts, host).read_text(encoding="utf-8")))
    return set()


def keep(opts, host, guests):
    """These are away now, and no others."""
    if guests:
        private.write(str(_path(opts, host)), json.dumps(sorted(guests)))
    else:
        _path(opts, host).unlink(missing_ok=True)


def forget(opts, name):
    """The guest is gone: another one of its name is brought back to no host."""
    for path in _folder(opts).glob("[!.]*"):
        known = of(opts, path.name)
        if name in known:
            keep(opts, path.name, known - {name})
