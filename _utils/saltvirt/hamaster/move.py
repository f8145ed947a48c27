"""A person wants a guest of high availability on another host."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from saltvirt import errors, names, units
from saltvirt.fleet.client import Fleet
from saltvirt.ha.registry import PLACED, UP
from saltvirt.ha.view import MIGRATE, RELOCATE, STARTED, Wish
from saltvirt.hamaster import seen
from saltvirt.hamaster.person import Person
from saltvirt.hamaster.wishes import Wishes
from saltvirt.operations import lock
from saltvirt.operations.operation import Checked, Reasons, Result

WAIT_S = 600
_LOOK_S = 0.5


class Move:
    """Has the engine move it: live, or by a stop and a start. Ends when the engine says where it
    is; then the wish has an end, too."""

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        host: str,
        live: bool = True,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.fleet, self.name, self.host = fleet, str(name), str(host)
        self.live, self.wait = live, wait
        self.person = Person(fleet, "ha_move")

    def check(self) -> Checked:
        """From where it would go, or all that is against it."""
        reasons = Reasons()
        with reasons:
            source = self._source(reasons)
            reasons.hold()
            if source == self.host:
                return Checked(self.name, f"{self.name} is on {source} already", nothing=True)
            words = f"{self.name} would be moved from {source} to {self.host}"
            return Checked(self.name, words, {"host": {"old": source, "new": self.host}})
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, OperationFailed; the message says where the guest is."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.ha_move"):
            source = self._source(Reasons(first=True))
            if source == self.host:
                return Result(name, f"{name} is on {source} already")
            wishes = self.person.wish(name, f"{name} is wanted on {self.host}", self._wished)
            try:
                self._waited(wishes.wishes[name].number)
            finally:
                self.person.withdraw(self._forgotten)
        words = f"{name} was moved from {source} to {self.host}"
        return Result(name, words, {"host": {"old": source, "new": self.host}})

    def _source(self, reasons: Reasons) -> str:
        """Where it is, by the engine."""
        wishes, engine = self.person.store.read(), self.person.engine
        if not isinstance(self.live, bool):
            raise errors.InvalidInput(f"live must be True or False, not {units.shown(self.live)}")
        self.person.guest(wishes, self.name)
        self.person.member(self.host)
        if engine.why:
            raise errors.OperationFailed(engine.why)
        record = engine.registry.guests.get(self.name)
        if record is None or record.state != PLACED or record.target:
            state = record.state if record else "new"
            with reasons:
                raise errors.OperationFailed(f"{self.name} is {state}, or moves: wait for that")
        if wishes.guests[self.name].wanted != STARTED:
            with reasons:
                raise errors.InvalidInput(
                    f"{self.name} is {wishes.guests[self.name].wanted}: it starts where there is "
                    "room, and a rule (virt.ha_rule hosts=) says where"
                )
        there = engine.registry.host(self.host)
        if there.state != UP:
            with reasons:
                raise errors.OperationFailed(f"{self.host} is {there.state}: {there.why}")
        if engine.seen.leading and not engine.registry.armed:
            with reasons:
                raise errors.OperationFailed(seen.DISARMED)
        return record.host if record else ""

    def _wished(self, wishes: Wishes) -> Wishes:
        number = wishes.number + 1
        one = Wish(number, MIGRATE if self.live else RELOCATE, self.host)
        return replace(wishes, number=number, wishes={**wishes.wishes, self.name: one})

    def _forgotten(self, wishes: Wishes) -> Wishes:
        left = {name: one for name, one in wishes.wishes.items() if name != self.name}
        return replace(wishes, wishes=left)

    def _waited(self, number: int) -> None:
        """Raises OperationFailed unless the engine says that it has arrived."""
        host = why = ""
        for _ in range(int(WAIT_S / _LOOK_S)):
            engine = seen.look(self.fleet.opts)
            record = engine.registry.guests.get(self.name)
            if engine.why or record is None:
                why = engine.why or "it is no longer of high availability"
                break
            host, why = record.host, record.why
            if record.wish >= number and not record.target and record.state == PLACED:
                if host == self.host:
                    return
                break
            self.wait(_LOOK_S)
        raise errors.OperationFailed(
            f"{self.name} is not on {self.host}" + (f" but on {host}" if host else "") + f": {why}"
        )
