"""What all verbs of high availability have in common: the settings, the wishes, and that the bus
and the journal hear what a person wanted."""

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

TAG = "salt/virt/ha/wish"
# so long a verb waits until several masters agree
WAIT_S, _POLL_S = 10, 0.2


class AdminRequest:
    """A person at this master. verb: as it is typed."""

    def __init__(self, fleet: Fleet, verb: str) -> None:
        self.fleet, self.verb = fleet, verb
        self.store = DesiredStateStore(fleet.opts)

    @cached_property
    def config(self) -> config.HaConfig:
        """Raises InvalidInput where nothing is configured, or wrongly."""
        return config.of_master(self.fleet.opts)

    @cached_property
    def engine(self) -> status_file.EngineStatus:
        """The engine, as it is seen now."""
        return status_file.load(self.fleet.opts)

    @property
    def notice(self) -> str:
        """What is said beside the comment when the engine cannot be relied on."""
        notices = [self.engine.problem] if self.engine.problem else []
        if self.multi_master and self.store.read().offers:
            notices.append("the masters have not agreed on it yet")
        return "".join(f"; {notice}" for notice in notices)

    @property
    def armed(self) -> bool:
        """Whether a person wants it armed."""
        return self.store.read().armed

    @property
    def multi_master(self) -> bool:
        """Other masters have to agree."""
        return len(self.config.masters) > 1

    def member(self, host: str) -> str:
        """The host. Raises NotFound where it takes no part."""
        if host not in self.config.members:
            members = ", ".join(sorted(self.config.members))
            raise errors.NotFound(f"{host!r} is no member of virt:ha; members: {members}")
        return host

    def guest(self, desired: DesiredState, name: str) -> None:
        """Raises NotFound where the guest is not of high availability."""
        if name not in desired.guests:
            raise errors.NotFound(
                f"{name} was not given to high availability: salt-run virt.ha_enable {name}"
            )

    def submit(
        self, subject: str, text: str, edit: Callable[[DesiredState], DesiredState]
    ) -> DesiredState:
        """Writes the wish down; then the journal and the bus have it. Where there are several
        masters it is said at the one who leads, and waits until they agree.

        Raises OperationFailed where another one leads.
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
        """Writes down that a wish has an end; the other masters are to agree, and nobody waits for
        that. Raises OperationFailed, OSError."""
        change = self.store.offer if self.multi_master else self.store.change
        change(f"virt.{self.verb}", edit)

    def publish(self, subject: str, text: str) -> None:
        """The journal and the bus hear of it. What cannot be told was done all the same."""
        try:
            HaJournal(self.fleet.opts).write("wish", subject, verb=self.verb, why=text)
        except OSError as exc:
            log.warning("the journal of high availability: %s", exc)
        event = {"verb": self.verb, "about": subject, "message": sanitize.one_line(text)}
        self.fleet.fire_event(TAG, event)


def refuse_unless_leading(engine: status_file.EngineStatus, name: str) -> None:
    """Raises OperationFailed where another of several masters leads, or nobody knows who. name: of
    this one."""
    report = engine.report
    if report.leading and not engine.problem:
        return
    if report.leader not in ("", name):
        raise errors.OperationFailed(f"{report.leader} leads: say it on that master")
    if engine.problem:
        raise errors.OperationFailed(
            f"{engine.problem}; with several masters it is said on the one who leads"
        )
