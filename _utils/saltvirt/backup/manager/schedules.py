"""The backup schedules of the guests of a deployment.

The schedule of a new guest is written into its record; the record of an existing guest is updated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltvirt import errors, settings
from saltvirt.backup.model import backup_schedule, calls, policy
from saltvirt.backup.model.backup_schedule import KEY, BackupSchedule
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core.operation import Checked, Result
from saltvirt.spec.base import mapping


class BackupSchedules:
    """The schedules of one deployment. opts: the master's configuration."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts = opts
        self._schedules: dict[str, BackupSchedule] = {}

    def take_options(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a guest's options, with its backup schedule moved into its metadata.

        Raises InvalidInput, and NotFound for an unknown target.
        """
        label = f"guest {name}"
        rest, schedule = backup_schedule.split_options(options, label)
        if schedule is None:
            return rest
        if schedule.is_enabled:
            backup_policy = policy.read(settings.of_master(self._opts))
            backup_policy.target(schedule.target)
        self._schedules[name] = schedule
        metadata = mapping(rest.get("metadata") or {}, f"{label}: metadata")
        if KEY in metadata:
            raise errors.InvalidInput(
                f"{label}: backup is set twice: remove it from the guest's metadata"
            )
        return {**rest, "metadata": {**metadata, KEY: schedule.text}}

    def apply(self, fleet: Fleet, name: str, host: str, test: bool) -> Result | None:
        """Update the schedule of an existing guest; see GuestSettings."""
        schedule = self._schedules.get(name)
        if schedule is None:
            return None
        request = calls.ScheduleRequest(name, schedule.text, test)
        before = calls.SET_SCHEDULE.ask(fleet, host, request)
        if before == schedule.text:
            return None
        changes = {KEY: {"old": before, "new": schedule.text}}
        verb = "would set" if test else "set"
        comment = f"{verb} the backup schedule of {name}: {schedule.text}"
        return Checked(name, comment, changes) if test else Result(name, comment, changes)
