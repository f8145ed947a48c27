"""All of high availability on or off; and a person's word that a host is off."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from saltvirt import errors
from saltvirt.fleet import answer
from saltvirt.fleet.client import Fleet
from saltvirt.ha.manager import status_file
from saltvirt.ha.manager.admin_request import AdminRequest
from saltvirt.operations.core.operation import Checked, Reasons, Result

ABOUT = "ha"
# a majority must keep it, and hosts' watchdogs come to rest one beat after that
WAIT_S = 60
_POLL_S = 0.5


class Arm:
    """armed: hosts are fenced and guests restarted. Not armed: nothing is, and the hosts'
    watchdogs are at rest. Ends when the engine says that it is so."""

    def __init__(
        self, fleet: Fleet, armed: bool, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.fleet, self.armed, self.wait = fleet, armed, wait
        self.request = AdminRequest(fleet, "ha_arm" if armed else "ha_disarm")

    def check(self) -> Checked:
        """Whether anything would change."""
        reasons = Reasons()
        with reasons:
            _ = self.request.config
            old = self.request.store.read().armed
            if old == self.armed and not self._pending():
                return Checked(ABOUT, self._text("is", " already"), nothing=True)
            changes = {"armed": {"old": old, "new": self.armed}}
            return Checked(ABOUT, f"{self._text('would be')}{self.request.notice}", changes)
        return reasons.checked(ABOUT)

    def run(self) -> Result:
        """Raises InvalidInput, OperationFailed. Incomplete when the engine has not done it yet."""
        _ = self.request.config
        old = self.request.store.read().armed
        changes = {} if old == self.armed else {"armed": {"old": old, "new": self.armed}}
        if changes:
            text = self._text("is to be")
            self.request.submit(ABOUT, text, lambda desired: replace(desired, armed=self.armed))
        pending = self._wait_settled()
        if pending:
            message = f"it is written down that {self._text('is to be')}; {pending}"
            return Result(ABOUT, message, changes, complete=False)
        return Result(ABOUT, self._text("is"), changes)

    def _wait_settled(self) -> str:
        for _ in range(int(WAIT_S / _POLL_S)):
            pending = self._pending()
            if not pending or status_file.load(self.fleet.opts).problem:
                return pending
            self.wait(_POLL_S)
        return self._pending()

    def _pending(self) -> str:
        """What is not so yet, or nothing."""
        engine = status_file.load(self.fleet.opts)
        if engine.problem:
            return engine.problem
        if engine.registry.armed != self.armed or not engine.report.settled:
            return "a majority of the hosts has not confirmed it yet"
        armed = [name for name, host in sorted(engine.report.hosts.items()) if host.armed]
        if armed and not self.armed:
            return f"the watchdogs of {', '.join(armed)} are not at rest yet"
        return ""

    def _text(self, verb: str, suffix: str = "") -> str:
        message = f"high availability {verb} {'armed' if self.armed else 'disarmed'}{suffix}"
        return message if self.armed else f"{message}: nothing is fenced, nothing restarted"


class ConfirmOff:
    """A person's word that a host is off, and will not write to its guests' disks any more: they
    are started elsewhere. It is refused of a host that answers."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host = fleet, str(host)
        self.request = AdminRequest(fleet, "ha_confirm_off")

    def check(self) -> Checked:
        """Which guests would be started elsewhere."""
        reasons = Reasons()
        with reasons:
            boot = self._boot(reasons)
            reasons.raise_first()
            message = f"{self.host} would be taken to be off{self._guests()}{self.request.notice}"
            return Checked(self.host, message, {"confirmed": {"boot": boot}})
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Raises NotFound, OperationFailed when it answers."""
        host, boot = self.host, self._boot(Reasons(first=True))
        text = f"a person said that {host} is off (start {boot} of it)"
        self.request.submit(
            host,
            text,
            lambda desired: replace(desired, confirmed={**desired.confirmed, host: boot}),
        )
        message = f"{host} is taken to be off{self._guests()}{self.request.notice}"
        return Result(host, message, {"confirmed": {"boot": boot}})

    def _boot(self, reasons: Reasons) -> int:
        """Which start of the host is meant: the last that was heard of."""
        self.request.member(self.host)
        engine = self.request.engine
        with reasons:
            if engine.hears(self.host, self.request.config.policy.suspect_s):
                raise errors.OperationFailed(f"{self.host} is not off: its agent was heard")
        with reasons:
            ping = self.fleet.gather([self.host], "test.ping")[self.host]
            if ping.kind not in (answer.DOWN, answer.SILENT):
                raise errors.OperationFailed(f"{self.host} is not off: its minion answers")
        return engine.registry.host(self.host).boot

    def _guests(self) -> str:
        names = sorted(
            name
            for name, record in self.request.engine.registry.guests.items()
            if any(location.host == self.host for location in record.places)
        )
        return f": {', '.join(names)} may be started elsewhere" if names else ""
