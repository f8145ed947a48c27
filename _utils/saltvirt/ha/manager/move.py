"""Move a managed guest to another host, on request of an operator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from saltvirt import errors, names, units
from saltvirt.fleet.client import Fleet
from saltvirt.ha.manager import status_file
from saltvirt.ha.manager.admin_request import AdminRequest
from saltvirt.ha.manager.desired_state import DesiredState
from saltvirt.ha.model.registry import PLACED, UP
from saltvirt.ha.model.view import MIGRATE, RELOCATE, STARTED, RelocationRequest
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.journal import lock

WAIT_S = 600
_POLL_S = 0.5


class MoveGuest:
    """Have the engine move the guest, live, or by a shutdown and a start. Wait until the engine
    reports its host; then withdraw the request."""

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
        self.request = AdminRequest(fleet, "ha_move")

    def check(self) -> Checked:
        """Return from where the guest would move, or all obstacles."""
        reasons = Reasons()
        with reasons:
            source = self._source(reasons)
            reasons.raise_first()
            if source == self.host:
                return Checked(self.name, f"{self.name} is already on {source}", nothing=True)
            message = f"{self.name} would be moved from {source} to {self.host}"
            return Checked(self.name, message, {"host": {"old": source, "new": self.host}})
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, OperationFailed; the message names the guest's host."""
        name = names.guest(self.name)
        with lock.guest(self.fleet.opts, name, "virt.ha_move"):
            source = self._source(Reasons(first=True))
            if source == self.host:
                return Result(name, f"{name} is already on {source}")
            desired = self.request.submit(
                name, f"{name} is to move to {self.host}", self._with_relocation
            )
            try:
                self._wait_arrival(desired.relocations[name].number)
            finally:
                self.request.withdraw(self._without_relocation)
        message = f"{name} was moved from {source} to {self.host}"
        return Result(name, message, {"host": {"old": source, "new": self.host}})

    def _source(self, reasons: Reasons) -> str:
        """Return the present host, as the engine knows it."""
        desired, engine = self.request.store.read(), self.request.engine
        if not isinstance(self.live, bool):
            raise errors.InvalidInput(
                f"live must be True or False, not {units.short_repr(self.live)}"
            )
        self.request.guest(desired, self.name)
        self.request.member(self.host)
        if engine.problem:
            raise errors.OperationFailed(engine.problem)
        record = engine.registry.guests.get(self.name)
        if record is None or record.state != PLACED or record.target:
            state = record.state if record else "new"
            with reasons:
                raise errors.OperationFailed(
                    f"{self.name} is {state} or is being moved: wait until it is placed"
                )
        state = desired.guests[self.name].desired_state
        if state != STARTED:
            with reasons:
                raise errors.InvalidInput(
                    f"{self.name} is {state}, so it cannot be moved: it will be started on any "
                    "host with capacity; use virt.ha_rule hosts= to choose hosts"
                )
        target = engine.registry.host(self.host)
        if target.state != UP:
            with reasons:
                raise errors.OperationFailed(f"{self.host} is {target.state}: {target.reason}")
        if engine.report.leading and not engine.registry.armed:
            with reasons:
                raise errors.OperationFailed(status_file.DISARMED)
        return record.host if record else ""

    def _with_relocation(self, desired: DesiredState) -> DesiredState:
        number = desired.number + 1
        relocation = RelocationRequest(number, MIGRATE if self.live else RELOCATE, self.host)
        return replace(
            desired, number=number, relocations={**desired.relocations, self.name: relocation}
        )

    def _without_relocation(self, desired: DesiredState) -> DesiredState:
        remaining = {
            name: relocation
            for name, relocation in desired.relocations.items()
            if name != self.name
        }
        return replace(desired, relocations=remaining)

    def _wait_arrival(self, number: int) -> None:
        """Raise OperationFailed unless the engine reports that the guest has arrived."""
        host = reason = ""
        for _ in range(int(WAIT_S / _POLL_S)):
            engine = status_file.load(self.fleet.opts)
            record = engine.registry.guests.get(self.name)
            if engine.problem or record is None:
                reason = engine.problem or "the guest is no longer managed by high availability"
                break
            host, reason = record.host, record.reason
            if record.last_request >= number and not record.target and record.state == PLACED:
                if host == self.host:
                    return
                break
            self.wait(_POLL_S)
        raise errors.OperationFailed(
            f"{self.name} is not on {self.host}"
            + (f" but on {host}" if host else "")
            + f": {reason}"
        )
