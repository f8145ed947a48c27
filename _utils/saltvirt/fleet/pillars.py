"""The pillars of guests that the operator set when creating them.

There is one file for each guest below ``pki_dir/virtpillars``, bound to the accepted public key of
the guest: another machine that gets the name later does not receive the pillar.
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
    """Return the fingerprint of a public key, regardless of line breaks."""
    return hashlib.sha256("".join(pub_pem.split()).encode()).hexdigest()


def check(opts: dict[str, Any], pillar: Any) -> dict[str, Any]:
    """Return the pillar if it is valid and this master serves it.

    opts: the master's options. Raises InvalidInput, Unsupported.
    """
    if not isinstance(pillar, dict):
        raise errors.InvalidInput("pillar must be a dictionary")
    try:
        json.dumps(pillar)
    except (TypeError, ValueError):
        raise errors.InvalidInput("pillar must contain plain data only") from None
    if not any(EXT_PILLAR in entry for entry in opts.get("ext_pillar") or ()):
        raise errors.Unsupported(
            "this master does not serve the pillar argument: add ext_pillar: [{virtkey: _}] to its "
            "configuration and restart it"
        )
    return pillar


class Pillars:
    """Store and serve the pillars of guests. opts: the master's options."""

    def __init__(self, opts: dict[str, Any]) -> None:
        self._root = os.path.join(opts["pki_dir"], "virtpillars")

    def _path(self, name: str) -> str:
        return os.path.join(self._root, names.guest(name))

    def store(self, name: str, pub_pem: str, pillar: dict[str, Any] | None) -> None:
        """Store the pillar for the machine with the key. An empty pillar is removed."""
        if not pillar:
            self.remove(name)
            return
        text = json.dumps({"key": fingerprint(pub_pem), "pillar": pillar})
        private.write(self._path(name), text)

    def remove(self, name: str) -> bool:
        """Remove a guest's pillar. Return whether it existed."""
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def orphans(self, public: Callable[[str], str | None]) -> Iterator[str]:
        """Yield the names of pillars that are bound to a key that no longer exists."""
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._root)):
                if not name.startswith(".") and not self.load(name, public):
                    yield name

    def load(self, name: str, public: Callable[[str], str | None]) -> dict[str, Any]:
        """Return the pillar of a minion; {} if there is none.

        public: returns the accepted key of a name.
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
