"""The request of one migration, as the source host performs it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from saltvirt.answers.migration import Certificate
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import guest_lock
from saltvirt.host.migration import move_journal, peer
from saltvirt.migration.options import MigrationSettings, Options
from saltvirt.migration.transport import Transport
from saltvirt.placement.policy import PlacementPolicy
from saltvirt.settings import Connection


@dataclass(frozen=True)
class MigrationJob:
    """The request. configured: this host's ``virt:migration``. local: our own libvirt; username and
    password are the target's. placement, ratios, limits, certificates, overcommit, unmounted: see
    CheckedMigration. notify: is called with a dict at each step: ``text``, and during the transfer
    ``percent``, ``remaining_bytes``, ``speed``, ``dirty_rate``, ``elapsed_s``. on_target_lost: is
    called with the target's name before the migration ends without it, because an operator declared
    it lost."""

    name: str
    transport: Transport
    options: Options
    configured: MigrationSettings = field(default_factory=MigrationSettings)
    username: str | None = None
    password: str | None = None
    local: Connection = field(default_factory=Connection)
    placement: PlacementPolicy = field(default_factory=PlacementPolicy)
    ratios: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    overcommit: bool = False
    unmounted: tuple[str, ...] = ()
    certificates: dict[str, dict[str, Certificate]] = field(default_factory=dict)
    journals: str = move_journal.FOLDER
    locks: str = guest_lock.FOLDER
    notify: Callable[[dict[str, Any]], None] = lambda event: None
    on_target_lost: Callable[[str], object] = lambda host: None

    def peer(self) -> AbstractContextManager[libvirt.virConnect]:
        return peer.connect(self.transport, self.username, self.password)

    def report_step(self, text: str) -> None:
        self.notify({"text": text})
