"""Show, start or end the maintenance of a host without moving guests."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, units
from saltvirt.answers.host_calls import MAINTENANCE, MaintenanceRequest
from saltvirt.answers.maintenance import MaintenanceMark
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster.ha_provider import HaProvider
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.journal import lock
from saltvirt.spec import values

DEFAULT_REASON = "maintenance"
_NO_MARK = MaintenanceMark(None, ())


def show(fleet: Fleet, host: str) -> Result:
    """Return whether a host is in maintenance. Raises NotFound, ConnectionFailed."""
    fleet.hosts(host)
    mark = _read(fleet, host)
    return Result(host, _state_text(host, mark), {}, _details(host, mark))


class Maintenance:
    """Starts or ends the maintenance of a host. reason: stored in the mark; None keeps the reason
    of a host that is in maintenance already. provider: moves the guests that it manages away."""

    def __init__(
        self,
        fleet: Fleet,
        host: str,
        on: bool,
        reason: object = None,
        provider: HaProvider | None = None,
    ) -> None:
        self.fleet, self.host, self.on, self.provider = fleet, host, on, provider
        self.reason = reason

    def check(self) -> Checked:
        """Return what would change, and every reason against it."""
        host, reasons = self.host, Reasons()
        with reasons:
            self._refuse(reasons)
            with reasons:
                lock.refuse_drained(self.fleet.opts, host)
            mark = _read(self.fleet, host)
            reasons.raise_first()
            details, changes = _details(host, mark), self._changes(mark)
            if not changes:
                return Checked(host, _state_text(host, mark), {}, details, nothing=True)
            comment = f"{host} would accept new guests"
            if self.on:
                comment = f"{host} would get no new guests: {self._target(mark).reason}"
            return Checked(host, comment + self._note(), changes, details)
        return reasons.checked(host)

    def run(self) -> Result:
        """Start or end the maintenance. Raises NotFound, InvalidInput, ConnectionFailed;
        OperationFailed if another operation evacuates or restores the host, or the host did not
        store the mark."""
        host = self.host
        self._refuse(Reasons(first=True))
        with lock.host(self.fleet.opts, host, f"virt.maintenance {host}"):
            mark = _read(self.fleet, host)
            changes = self._changes(mark)
            if not changes:
                return Result(host, _state_text(host, mark), {}, _details(host, mark))
            stored = self._store(self._target(mark))
        if self.provider:
            self.provider.refresh()
        comment = _state_text(host, stored) + self._note()
        return Result(host, comment, changes, _details(host, stored))

    def _refuse(self, reasons: Reasons) -> None:
        """Collect what is wrong with the arguments. Raises NotFound."""
        self.fleet.hosts(self.host)
        with reasons:
            if self.reason is not None:
                values.reason(self.reason)
        with reasons:
            if self.reason is not None and not self.on:
                raise errors.InvalidInput("a reason is only possible with on")

    def _store(self, mark: MaintenanceMark) -> MaintenanceMark:
        """Have the host store the mark. Raises OperationFailed if it did not."""
        request = MaintenanceRequest(mark.reason)
        if mark.reason is None:
            request = MaintenanceRequest(off=True, guests=mark.guests or None)
        stored = MAINTENANCE.ask(self.fleet, self.host, request) or _NO_MARK
        if stored.reason != mark.reason:
            raise errors.OperationFailed(f"{self.host} did not record its maintenance")
        return stored

    def _target(self, mark: MaintenanceMark) -> MaintenanceMark:
        """Return the mark that the host shall have."""
        given = None if self.reason is None else values.reason(self.reason)
        reason = given or mark.reason or DEFAULT_REASON
        return MaintenanceMark(reason if self.on else None, mark.guests)

    def _changes(self, mark: MaintenanceMark) -> dict[str, Any]:
        target = self._target(mark)
        if target.reason == mark.reason:
            return {}
        return {"maintenance": {"old": mark.reason, "new": target.reason}}

    def _note(self) -> str:
        if self.on and self.provider:
            return "; high availability moves the guests that it manages to other hosts"
        return ""


def _read(fleet: Fleet, host: str) -> MaintenanceMark:
    return MAINTENANCE.ask(fleet, host, MaintenanceRequest(), long=False) or _NO_MARK


def _details(host: str, mark: MaintenanceMark) -> dict[str, Any]:
    return {
        "host": host,
        "maintenance": mark.reason is not None,
        "reason": mark.reason,
        "guests": [*mark.guests],
    }


def _state_text(host: str, mark: MaintenanceMark) -> str:
    text = f"{host} accepts new guests"
    if mark.reason is not None:
        text = f"{host} is in maintenance and gets no new guests: {mark.reason}"
    if mark.guests:
        evacuated = units.pluralize(len(mark.guests), "guest")
        text += f"; {evacuated} evacuated from it can return: salt-run virt.restore {host}"
    return text
