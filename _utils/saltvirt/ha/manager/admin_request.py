"""What all verbs of high availability have in common: the settings, the desired state, the journal
and events."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cached_property

from saltvirt import errors, sanitize
from saltvirt.fleet.client import Fleet
from saltvirt.ha.manager import config, status_file
from saltvirt.ha.manager.desired_state import DesiredState, DesiredStateStore
from saltvirt.ha.manager.journal import HaJournal

log = logging.getLogger(__name__)

TAG = "salt/virt/ha/request"
# maximum time in which several masters are to agree
WAIT_S, _POLL_S = 10, 0.2


class AdminRequest:
    """A request of an operator on this master. verb: as typed."""

    def __init__(self, fleet: Fleet, verb: str) -> None:
        self.fleet, self.verb = fleet, verb
        self.store = DesiredStateStore(fleet.opts)

    @cached_property
    def config(self) -> config.HaConfig:
        """The settings. Raises InvalidInput if they are missing or invalid."""
        return config.of_master(self.fleet.opts)

    @cached_property
    def engine(self) -> status_file.EngineStatus:
        """The present status of the engine."""
        return status_file.load(self.fleet.opts)

    @property
    def notice(self) -> str:
        """An addition to the comment if the engine is not reliable."""
        notices = [self.engine.problem] if self.engine.problem else []
        if self.multi_master and self.store.read().offers:
            notices.append("the masters have not agreed on it yet")
        return "".join(f"; {notice}" for notice in notices)

    @property
    def armed(self) -> bool:
        """Whether HA is to be armed."""
        return self.store.read().armed

    @property
    def multi_master(self) -> bool:
        """Whether other masters have to agree."""
        return len(self.config.masters) > 1

    def member(self, host: str) -> str:
        """Return the host. Raises NotFound if it is no member."""
        if host not in self.config.members:
            members = ", ".join(sorted(self.config.members))
            raise errors.NotFound(f"{host!r} is not a member of virt:ha; members: {members}")
        return host

    def guest(self, desired: DesiredState, name: str) -> None:
        """Raise NotFound if the guest is not managed."""
        if name not in desired.guests:
            raise errors.NotFound(
                f"{name} is not managed by high availability: run salt-run virt.ha_enable {name}"
            )

    def submit(
        self, subject: str, text: str, edit: Callable[[DesiredState], DesiredState]
    ) -> DesiredState:
        """Save the request, then add it to the journal and send an event. With several masters,
        this must be the leader; wait until they agree.

        Raises OperationFailed if another master leads.
        """
        if not self.multi_master:
            desired = self.store.change(f"virt.{self.verb}", edit)
        else:
            refuse_unless_leading(self.engine, self.config.name)
            desired = self.store.offer(f"virt.{self.verb}", edit)
            end_s = time.monotonic() + WAIT_S
            while self.store.read().offers and time.monotonic() < end_s:
                time.sleep(_POLL_S)
        self.publish(subject, text)
        return desired

    def withdraw(self, edit: Callable[[DesiredState], DesiredState]) -> None:
        """Save that a request has ended. Other masters have to agree, but this does not wait.
        Raises OperationFailed, OSError."""
        change = self.store.offer if self.multi_master else self.store.change
        change(f"virt.{self.verb}", edit)

    def publish(self, subject: str, text: str) -> None:
        """Add a text to the journal and send an event. An error does not undo the request."""
        try:
            HaJournal(self.fleet.opts).write("request", subject, verb=self.verb, reason=text)
        except OSError as exc:
            log.warning("the journal of high availability: %s", exc)
        event = {"verb": self.verb, "about": subject, "message": sanitize.one_line(text)}
        self.fleet.fire_event(TAG, event)


def refuse_unless_leading(engine: status_file.EngineStatus, name: str) -> None:
    """Raise OperationFailed if another of several masters leads, or if the leader is unknown. name:
    of this master."""
    report = engine.report
    if report.leading and not engine.problem:
        return
    if report.leader not in ("", name):
        raise errors.OperationFailed(f"{report.leader} leads: run the command on that master")
    if engine.problem:
        raise errors.OperationFailed(
            f"{engine.problem}; with several masters, run the command on the one that leads"
        )
