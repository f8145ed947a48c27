"""What all verbs of high availability have in common: the settings, the wishes, and that the bus
and the journal hear what a person wanted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cached_property

from saltvirt import errors, plain
from saltvirt.fleet.client import Fleet
from saltvirt.hamaster import config, seen
from saltvirt.hamaster.journal import Journal
from saltvirt.hamaster.wishes import Wishes, WishStore

log = logging.getLogger(__name__)

TAG = "salt/virt/ha/wish"
# so long a verb waits until several masters agree
WAIT_S, _LOOK_S = 10, 0.2


class Person:
    """A person at this master. verb: as it is typed."""

    def __init__(self, fleet: Fleet, verb: str) -> None:
        self.fleet, self.verb = fleet, verb
        self.store = WishStore(fleet.opts)

    @cached_property
    def config(self) -> config.HaConfig:
        """Raises InvalidInput where nothing is configured, or wrongly."""
        return config.of_master(self.fleet.opts)

    @cached_property
    def engine(self) -> seen.Engine:
        """The engine, as it is seen now."""
        return seen.look(self.fleet.opts)

    @property
    def beside(self) -> str:
        """What is said beside the comment when the engine cannot be relied on."""
        found = [self.engine.why] if self.engine.why else []
        if self.several and self.store.read().offers:
            found.append("the masters have not agreed on it yet")
        return "".join(f"; {one}" for one in found)

    @property
    def armed(self) -> bool:
        """Whether a person wants it armed."""
        return self.store.read().armed

    @property
    def several(self) -> bool:
        """Other masters have to agree."""
        return len(self.config.masters) > 1

    def member(self, host: str) -> str:
        """The host. Raises NotFound where it takes no part."""
        if host not in self.config.members:
            known = ", ".join(sorted(self.config.members))
            raise errors.NotFound(f"{host!r} is no member of virt:ha; members: {known}")
        return host

    def guest(self, wishes: Wishes, name: str) -> None:
        """Raises NotFound where the guest is not of high availability."""
        if name not in wishes.guests:
            raise errors.NotFound(
                f"{name} was not given to high availability: salt-run virt.ha_enable {name}"
            )

    def wish(self, about: str, text: str, make: Callable[[Wishes], Wishes]) -> Wishes:
        """Writes the wish down; then the journal and the bus have it. Where there are several
        masters it is said at the one who leads, and waits until they agree.

        Raises OperationFailed where another one leads.
        """
        if not self.several:
            wishes = self.store.change(f"virt.{self.verb}", make)
        else:
            refuse_unless_leading(self.engine, self.config.name)
            wishes = self.store.offer(f"virt.{self.verb}", make)
            end_s = time.monotonic() + WAIT_S
            while self.store.read().offers and time.monotonic() < end_s:
                time.sleep(_LOOK_S)
        self.tell(about, text)
        return wishes

    def withdraw(self, make: Callable[[Wishes], Wishes]) -> None:
        """Writes down that a wish has an end; the other masters are to agree, and nobody waits for
        that. Raises OperationFailed, OSError."""
        change = self.store.offer if self.several else self.store.change
        change(f"virt.{self.verb}", make)

    def tell(self, about: str, text: str) -> None:
        """The journal and the bus hear of it. What cannot be told was done all the same."""
        try:
            Journal(self.fleet.opts).write("wish", about, verb=self.verb, why=text)
        except OSError as exc:
            log.warning("the journal of high availability: %s", exc)
        told = {"verb": self.verb, "about": about, "message": plain.line(text)}
        self.fleet.tell(TAG, told)


def refuse_unless_leading(engine: seen.Engine, name: str) -> None:
    """Raises OperationFailed where another of several masters leads, or nobody knows who. name: of
    this one."""
    found = engine.seen
    if found.leading and not engine.why:
        return
    if found.leader not in ("", name):
        raise errors.OperationFailed(f"{found.leader} leads: say it on that master")
    if engine.why:
        raise errors.OperationFailed(
            f"{engine.why}; with several masters it is said on the one who leads"
        )
