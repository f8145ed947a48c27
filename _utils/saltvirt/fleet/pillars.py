"""What the operator gave one guest to know: its own pillar, kept by the master.

One file a guest below ``pki_dir/virtpillars``, bound to the public key that was accepted for
it: another machine that comes by the name later does not get it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from saltvirt import errors, names
from saltvirt.fleet import private

EXT_PILLAR = "virtkey"


def fingerprint(pub_pem: str) -> str:
    """The fingerprint of a public key, however its lines are broken."""
    return hashlib.sha256("".join(pub_pem.split()).encode()).hexdigest()


def check(opts: dict[str, Any], pillar: Any) -> dict[str, Any]:
    """The pillar, when it is one and this master serves it. Raises InvalidInput, Unsupported.

    opts: the master's options.
    """
    if not isinstance(pillar, dict):
        raise errors.InvalidInput("pillar: give a dictionary")
    try:
        json.dumps(pillar)
    except (TypeError, ValueError):
        raise errors.InvalidInput("pillar: it holds more than plain data") from None
    if not any(EXT_PILLAR in entry for entry in opts.get("ext_pillar") or ()):
        raise errors.Unsupported(
            "pillar: this master would not serve it; add ext_pillar: [{virtkey: _}] to its "
            "configuration and restart it"
        )
    return pillar


class Pillars:
    """Keeps and serves the pillars of guests. opts: the master's options."""

    def __init__(self, opts: dict[str, Any]) -> None:
        self._root = os.path.join(opts["pki_dir"], "virtpillars")

    def _path(self, name: str) -> str:
        return os.path.join(self._root, names.guest(name))

    def store(self, name: str, pub_pem: str, pillar: dict[str, Any] | None) -> None:
        """Keeps the pillar for the machine with that key; an empty one is none."""
        if not pillar:
            self.remove(name)
            return
        text = json.dumps({"key": fingerprint(pub_pem), "pillar": pillar})
        private.write(self._path(name), text)

    def remove(self, name: str) -> bool:
        """Takes a guest's pillar away; True when there was one."""
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def orphans(self, public: Callable[[str], str | None]) -> Iterator[str]:
        """The names whose pillar nobody can get, for the key it is bound to is gone."""
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._root)):
                if not name.startswith(".") and not self.load(name, public):
                    yield name

    def load(self, name: str, public: Callable[[str], str | None]) -> dict[str, Any]:
        """The pillar of a minion, {} when it has none here.

        public: a callable of the name, which returns the key that the master accepted for it.
        """
        data = None
        with (
            contextlib.suppress(FileNotFoundError, ValueError, RecursionError, errors.InvalidInput),
            open(self._path(name), encoding="utf-8") as file,
        ):
            data = json.load(file)
        if not isinstance(data, dict) or data.get("key") != fingerprint(public(name) or ""):
            return {}
        return data.get("pillar") or {}
