"""Arm and disarm high availability, and confirm that a host is off."""

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
# a majority must store it, and the hosts disarm their watchdogs one heartbeat later
WAIT_S = 60
_POLL_S = 0.5


class Arm:
    """Arm or disarm high availability. armed: hosts are fenced and guests restarted. Otherwise
    neither happens, and the hosts' watchdogs are disarmed. Waits until the engine reports the
    change."""

    def __init__(
        self, fleet: Fleet, armed: bool, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.fleet, self.armed, self.wait = fleet, armed, wait
        self.request = AdminRequest(fleet, "ha_arm" if armed else "ha_disarm")

    def check(self) -> Checked:
        """Return what would change."""
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
        """Raises InvalidInput, OperationFailed. The result is incomplete if the engine has not
        applied the change yet."""
        _ = self.request.config
        old = self.request.store.read().armed
        changes = {} if old == self.armed else {"armed": {"old": old, "new": self.armed}}
        if changes:
            text = self._text("will be")
            self.request.submit(ABOUT, text, lambda desired: replace(desired, armed=self.armed))
        pending = self._wait_settled()
        if pending:
            message = f"the request is saved: {self._text('will be')}; {pending}"
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
        """Return what is not applied yet, or nothing."""
        engine = status_file.load(self.fleet.opts)
        if engine.problem:
            return engine.problem
        if engine.registry.armed != self.armed or not engine.report.settled:
            return "a majority of the hosts has not confirmed it yet"
        armed = [name for name, host in sorted(engine.report.hosts.items()) if host.armed]
        if armed and not self.armed:
            return f"the watchdogs of {', '.join(armed)} are still armed"
        return ""

    def _text(self, verb: str, suffix: str = "") -> str:
        message = f"high availability {verb} {'armed' if self.armed else 'disarmed'}{suffix}"
        return message if self.armed else f"{message}: no host is fenced and no guest restarted"


class ConfirmOff:
    """An operator's confirmation that a host is off and will not write to its guests' disks again:
    its guests are started elsewhere. Refused if the host responds."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host = fleet, str(host)
        self.request = AdminRequest(fleet, "ha_confirm_off")

    def check(self) -> Checked:
        """Return which guests would be started elsewhere."""
        reasons = Reasons()
        with reasons:
            boot = self._boot(reasons)
            reasons.raise_first()
            message = f"{self.host} would be confirmed as off{self._guests()}{self.request.notice}"
            return Checked(self.host, message, {"confirmed": {"boot": boot}})
        return reasons.checked(self.host)

    def run(self) -> Result:
        """Raises NotFound; OperationFailed if the host responds."""
        host, boot = self.host, self._boot(Reasons(first=True))
        text = f"an operator confirmed that {host} is off (boot {boot})"
        self.request.submit(
            host,
            text,
            lambda desired: replace(desired, confirmed={**desired.confirmed, host: boot}),
        )
        message = f"{host} is confirmed as off{self._guests()}{self.request.notice}"
        return Result(host, message, {"confirmed": {"boot": boot}})

    def _boot(self, reasons: Reasons) -> int:
        """Return the boot of the host that is meant: the last one that is known."""
        self.request.member(self.host)
        engine = self.request.engine
        with reasons:
            if engine.hears(self.host, self.request.config.policy.suspect_s):
                raise errors.OperationFailed(f"{self.host} is not off: its agent responds")
        with reasons:
            ping = self.fleet.gather([self.host], "test.ping")[self.host]
            if ping.kind not in (answer.DOWN, answer.SILENT):
                raise errors.OperationFailed(f"{self.host} is not off: its minion responds")
        return engine.registry.host(self.host).boot

    def _guests(self) -> str:
        names = sorted(
            name
            for name, record in self.request.engine.registry.guests.items()
            if any(location.host == self.host for location in record.locations)
        )
        return f": {', '.join(names)} may be started elsewhere" if names else ""
