"""All of high availability on or off; and a person's word that a host is off."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from saltvirt import errors
from saltvirt.fleet import answer
from saltvirt.fleet.client import Fleet
from saltvirt.hamaster import seen
from saltvirt.hamaster.person import Person
from saltvirt.operations.operation import Checked, Reasons, Result

ABOUT = "ha"
# a majority must keep it, and hosts' watchdogs come to rest one beat after that
WAIT_S = 60
_LOOK_S = 0.5


class Arm:
    """armed: hosts are fenced and guests restarted. Not armed: nothing is, and the hosts'
    watchdogs are at rest. Ends when the engine says that it is so."""

    def __init__(
        self, fleet: Fleet, armed: bool, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.fleet, self.armed, self.wait = fleet, armed, wait
        self.person = Person(fleet, "ha_arm" if armed else "ha_disarm")

    def check(self) -> Checked:
        """Whether anything would change."""
        reasons = Reasons()
        with reasons:
            _ = self.person.config
            old = self.person.store.read().armed
            if old == self.armed and not self._left():
                return Checked(ABOUT, self._done("is", " already"), nothing=True)
            changes = {"armed": {"old": old, "new": self.armed}}
            return Checked(ABOUT, f"{self._done('would be')}{self.person.beside}", changes)
        return reasons.checked(ABOUT)

    def run(self) -> Result:
        """Raises InvalidInput, OperationFailed. Incomplete when the engine has not done it yet."""
        _ = self.person.config
        old = self.person.store.read().armed
        changes = {} if old == self.armed else {"armed": {"old": old, "new": self.armed}}
        if changes:
            text = self._done("is to be")
            self.person.wish(ABOUT, text, lambda known: replace(known, armed=self.armed))
        left = self._waited()
        if left:
            words = f"it is written down that {self._done('is to be')}; {left}"
            return Result(ABOUT, words, changes, complete=False)
        return Result(ABOUT, self._done("is"), changes)

    def _waited(self) -> str:
        for _ in range(int(WAIT_S / _LOOK_S)):
            left = self._left()
            if not left or seen.look(self.fleet.opts).why:
                return left
            self.wait(_LOOK_S)
        return self._left()

    def _left(self) -> str:
        """What is not so yet, or nothing."""
        engine = seen.look(self.fleet.opts)
        if engine.why:
            return engine.why
        if engine.registry.armed != self.armed or not engine.seen.settled:
            return "a majority of the hosts has not confirmed it yet"
        armed = [name for name, host in sorted(engine.seen.hosts.items()) if host.armed]
        if armed and not self.armed:
            return f"the watchdogs of {', '.join(armed)} are not at rest yet"
        return ""

    def _done(self, verb: str, more: str = "") -> str:
        words = f"high availability {verb} {'armed' if self.armed else 'disarmed'}{more}"
        return words if self.armed else f"{words}: nothing is fenced, nothing restarted"


class ConfirmOff:
    """A person's word that a host is off, and will not write to its guests' disks any more: they
    are started elsewhere. It is refused of a host that answers."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host = fleet, str(host)
        self.person = Person(fleet, "ha_confirm_off")

    def check(self) -> Checked:
        """Which guests would be started elsewhere."""
        reasons = Reasons()
        with reasons:
            boot = self._boot(reasons)
            reasons.hold()
            words = f"{self.host} would be taken to be off{self._guests()}{self.person.beside}"
            return Checked(self.host, words, {"confirmed": {"boot": boot}})
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Raises NotFound, OperationFailed when it answers."""
        host, boot = self.host, self._boot(Reasons(first=True))
        text = f"a person said that {host} is off (start {boot} of it)"
        self.person.wish(
            host, text, lambda known: replace(known, confirmed={**known.confirmed, host: boot})
        )
        words = f"{host} is taken to be off{self._guests()}{self.person.beside}"
        return Result(host, words, {"confirmed": {"boot": boot}})

    def _boot(self, reasons: Reasons) -> int:
        """Which start of the host is meant: the last that was heard of."""
        self.person.member(self.host)
        engine = self.person.engine
        with reasons:
            if engine.hears(self.host, self.person.config.policy.suspect_s):
                raise errors.OperationFailed(f"{self.host} is not off: its agent was heard")
        with reasons:
            asked = self.fleet.gather([self.host], "test.ping")[self.host]
            if asked.kind not in (answer.DOWN, answer.SILENT):
                raise errors.OperationFailed(f"{self.host} is not off: its minion answers")
        return engine.registry.host(self.host).boot

    def _guests(self) -> str:
        names = sorted(
            name
            for name, one in self.person.engine.registry.guests.items()
            if any(place.host == self.host for place in one.places)
        )
        return f": {', '.join(names)} may be started elsewhere" if names else ""
