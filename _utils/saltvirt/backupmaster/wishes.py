"""How guests of a deployment are to be backed up: written into the records of those that are new,
and seen to of those that are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltvirt import errors, settings
from saltvirt.backups import policy, wish
from saltvirt.backups.wish import KEY, Wish
from saltvirt.fleet.client import Fleet
from saltvirt.operations.operation import Checked, Result
from saltvirt.spec.base import mapping


class Wishes:
    """Of one deployment. opts: the master's configuration."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts = opts
        self._of: dict[str, Wish] = {}

    def marked(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """A guest's options, with what it says of backups among its metadata. Raises InvalidInput,
        NotFound for a target that is none."""
        label = f"guest {name}"
        rest, found = wish.taken(options, label)
        if found is None:
            return rest
        if found.is_wanted:
            known = policy.read(settings.of_master(self._opts))
            known.target(found.to)
        self._of[name] = found
        own = mapping(rest.get("metadata") or {}, f"{label}: metadata")
        if KEY in own:
            raise errors.InvalidInput(f"{label}: backup is said twice: take it out of metadata")
        return {**rest, "metadata": {**own, KEY: found.text}}

    def __call__(self, fleet: Fleet, name: str, host: str, test: bool) -> Result | None:
        """See operations.deploy.Also."""
        wanted = self._of.get(name)
        if wanted is None:
            return None
        asked = {"name": name, "wish": wanted.text, "test": test}
        before = fleet.one(host, "virt.backup_wish", asked, long=False)
        if before is not None and not isinstance(before, str):
            raise errors.BadAnswer(f"{host}: how {name} was backed up is no text")
        if before == wanted.text:
            return None
        changes = {KEY: {"old": before, "new": wanted.text}}
        words = f"{name} {'would be' if test else 'is'} backed up in another way: {wanted.text}"
        return Checked(name, words, changes) if test else Result(name, words, changes)
