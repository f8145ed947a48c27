"""What persons want of high availability: written by the verbs, read by the engine."""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from saltvirt import errors, plain
from saltvirt.ha import wished
from saltvirt.ha.registry import IGNORED as STATE_IGNORED
from saltvirt.ha.registry import STOPPED as STATE_STOPPED
from saltvirt.ha.registry import Registry, Wished
from saltvirt.ha.view import (
    IGNORED,
    STARTED,
    STOPPED,
    GuestRule,
    GuestWanted,
    MasterKept,
    Wish,
)
from saltvirt.hamaster import files
from saltvirt.operations import held, keepers
from saltvirt.placement.facts import Guest
from saltvirt.wire import Fact, seldom

log = logging.getLogger(__name__)

_MOST_OFFERS = 100

# what other verbs say of a guest
KEPT = (
    "high availability: salt-run virt.ha_move {name} HOST moves it, virt.ha_enable {name} "
    "state=stopped (or started) stops it (or starts it), virt.ha_ignore {name} leaves it to you"
)


@dataclass(frozen=True)
class Wishes(Fact):
    """armed: anything may be fenced and restarted. guests, rules, wishes: by name; sizes: what
    each guest took of its host. autostarted: guests that libvirt started with their host before.
    confirmed: host to the boot of which a person said that it is off. number: of the last Wish.
    base_term, base_version, offers: see ha.wished: where there are several masters, upon which that
    was agreed on this was made, and what nobody has agreed on yet. remade: it was lost, and made
    anew from the registry; no person has said anything since. fresh: a verb wrote it where there
    was no file, and the engine has not added yet what the hosts keep."""

    armed: bool = True
    guests: dict[str, GuestWanted] = field(default_factory=dict)
    sizes: dict[str, Guest] = field(default_factory=dict)
    rules: dict[str, GuestRule] = field(default_factory=dict)
    wishes: dict[str, Wish] = field(default_factory=dict)
    autostarted: frozenset[str] = frozenset()
    confirmed: dict[str, int] = field(default_factory=dict)
    number: int = 0
    base_term: int = seldom(0)
    base_version: int = seldom(0)
    offers: tuple[str, ...] = seldom(())
    remade: bool = seldom(False)
    fresh: bool = seldom(False)

    @functools.cached_property
    def wished(self) -> Wished:
        """As masters agree on it."""
        told = replace(self, base_term=0, base_version=0, offers=(), fresh=False).to_answer()
        return Wished(self.base_term, self.base_version, json.dumps(told, sort_keys=True))

    @property
    def sized(self) -> dict[str, GuestWanted]:
        """The guests with their sizes."""
        return {
            name: replace(one, size=self.sizes.get(name, one.size))
            for name, one in self.guests.items()
        }

    def without(self, name: str) -> Wishes:
        """Where that guest is no longer of high availability."""
        rules = {
            key: replace(rule, guests=tuple(one for one in rule.guests if one != name))
            for key, rule in self.rules.items()
        }
        return replace(
            self,
            guests={key: one for key, one in self.guests.items() if key != name},
            sizes={key: one for key, one in self.sizes.items() if key != name},
            wishes={key: one for key, one in self.wishes.items() if key != name},
            rules=rules,
            autostarted=self.autostarted - {name},
        )


def remade(registry: Registry) -> Wishes:
    """What can be told of it from what was decided, where nothing else is left."""
    states = {STATE_STOPPED: STOPPED, STATE_IGNORED: IGNORED}
    guests = {
        name: GuestWanted(
            name,
            host=one.host or one.last,
            wanted=states.get(one.state, STARTED),
            agent_silent_s=one.agent_silent_s,
        )
        for name, one in registry.guests.items()
    }
    number = max((one.wish for one in registry.guests.values()), default=0)
    return Wishes(armed=registry.armed, guests=guests, number=number, remade=True)


def kept_by_hosts(registry: Registry) -> Wishes:
    """What the hosts keep of what persons want. Raises OperationFailed for what cannot be read."""
    if not (registry.wished.text or registry.guests):
        return Wishes()
    return parse(registry.wished) if registry.wished.text else remade(registry)


def joined(own: Wishes, before: Wishes) -> Wishes:
    """What a person said where the file was lost, with what had been said before."""
    wishes = {
        name: replace(one, number=one.number + before.number) for name, one in own.wishes.items()
    }
    return replace(
        own,
        armed=own.armed and before.armed,
        guests={**before.guests, **own.guests},
        sizes={**before.sizes, **own.sizes},
        rules={**before.rules, **own.rules},
        wishes={**before.wishes, **wishes},
        autostarted=before.autostarted | own.autostarted,
        confirmed={**before.confirmed, **own.confirmed},
        number=own.number + before.number,
        fresh=False,
    )


def parse(found: Wished) -> Wishes:
    """What masters have agreed on. Raises OperationFailed for what cannot be read."""
    try:
        return Wishes.from_answer(json.loads(found.text), "what the masters have agreed on")
    except (ValueError, RecursionError, errors.BadAnswer) as exc:
        raise errors.OperationFailed(
            f"what the masters have agreed on cannot be read: {plain.line(exc)}"
        ) from exc


class WishStore:
    """The file of a master."""

    def __init__(self, opts: held.Opts) -> None:
        self._opts = opts
        self.path = files.folder(opts) / "wishes.json"
        self._known: tuple[tuple[int, ...], Wishes] | None = None

    def read(self) -> Wishes:
        """Raises OperationFailed when the file is damaged, or lost: when there is none, and guests
        are kept."""
        found = self._read()
        if found is None and self._are_kept():
            raise errors.OperationFailed(
                f"{self.path} is missing, and there are guests of high availability: the engine "
                "virt_ha makes it anew from what the hosts keep as soon as it leads; or put it "
                "back from a backup"
            )
        return found or Wishes()

    def _read(self) -> Wishes | None:
        found = files.read(self.path, Wishes)
        if found is not None and not found.guests and not files.has(self.path, "guests"):
            raise errors.OperationFailed(
                f"{self.path} names no guests at all, not even none: put it back from a backup, or "
                "move it away: it is made anew"
            )
        return found

    def _are_kept(self) -> bool:
        known = files.read(files.folder(self._opts) / "kept.json", MasterKept)
        return known is not None and bool(known.registry.guests)

    def news(self) -> Wishes | None:
        """The same when the file has changed since it was last asked; None when it has not."""
        try:
            seen = os.stat(self.path)
        except FileNotFoundError:
            stamp: tuple[int, ...] = ()
        else:
            stamp = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        if self._known is not None and self._known[0] == stamp:
            return None
        self._known = stamp, self._read() or Wishes()
        return self._known[1]

    def restore(self, wishes: Wishes) -> bool:
        """Writes the file anew, if there is none. Returns whether it did. Raises OperationFailed,
        also at once while another has the file; OSError."""
        with files.locked(self.path.with_suffix(".lock"), "the engine virt_ha", patience_s=0):
            if self.path.exists():
                return False
            files.write(self.path, wishes)
            return True

    def join(self, before: Wishes) -> Wishes:
        """Adds what had been said before to a fresh file. Raises OperationFailed, also at once
        while another has the file; OSError."""
        with files.locked(self.path.with_suffix(".lock"), "the engine virt_ha", patience_s=0):
            own = self._read() or Wishes()
            new = joined(own, before) if own.fresh else own
            files.write(self.path, new)
            return new

    def change(self, what: str, make: Callable[[Wishes], Wishes]) -> Wishes:
        """Writes what ``make`` makes of the present ones, one caller at a time, and returns it as
        it was read again. what: the operation, for others who wait."""
        with files.locked(self.path.with_suffix(".lock"), what):
            if self.path.parent != files.folder(self._opts):
                raise errors.OperationFailed("the files of high availability were moved: try again")
            fresh = not self.path.exists()
            old = self.read()
            wishes = replace(make(old), remade=False)
            wishes = replace(wishes, fresh=wishes.fresh or fresh)
            try:  # what fails here has changed nothing
                self.guard(wishes, old)
                files.write(self.path, wishes)
            except BaseException:
                self._guard_again(old)
                raise
            self._guard_again(wishes)
            return self.read()

    def offer(self, what: str, make: Callable[[Wishes], Wishes]) -> Wishes:
        """As ``change``, where the other masters have to agree."""

        def made(old: Wishes) -> Wishes:
            new = make(old)
            digest = wished.digest(new.wished.text)
            return replace(new, offers=(*old.offers, digest)[-_MOST_OFFERS:])

        return self.change(what, made)

    def learn(self, news: Wished, aside: Path) -> bool:
        """What the masters have agreed on. Returns whether something was given up by that, which a
        person had wanted here: it is put aside. Raises OperationFailed for what cannot be read, and
        at once while another has the file; OSError."""
        with files.locked(self.path.with_suffix(".lock"), "the engine virt_ha", patience_s=0):
            old = self._read() or Wishes()
            own = old.wished if self.path.exists() else Wished()
            found, offers, given_up = wished.learned(own, old.offers, news)
            if (found, offers) == (own, old.offers):
                return False
            known = old if found.text == own.text else parse(found)
            term, version = found.stamp
            new = replace(known, base_term=term, base_version=version, offers=offers)
            if given_up:
                files.write(aside, old)
            files.write(self.path, new)
            return given_up

    def _guard_again(self, wishes: Wishes) -> None:
        """What cannot be written is refused a while longer: the engine makes it right."""
        try:
            self.guard(wishes)
        except (errors.VirtError, OSError) as exc:
            log.warning("other verbs do not know yet which guests are kept: %s", plain.line(exc))

    def guard(self, *known: Wishes) -> None:
        """Other verbs leave the guests of all of them alone, but for those that are ignored."""
        kept = [
            name for wishes in known for name, one in wishes.guests.items() if one.wanted != IGNORED
        ]
        keepers.keep(self._opts, {name: KEPT.format(name=name) for name in kept})
