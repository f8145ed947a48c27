"""What backups add to the verbs of a master: the schedules of a deployment, the last backup of a
guest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt import errors, settings
from saltvirt.operations.cluster.hooks import MasterHooks

if TYPE_CHECKING:
    from saltvirt.backup.manager.schedules import BackupSchedules
    from saltvirt.fleet.client import Fleet
    from saltvirt.system import file_lock


class BackupMasterHooks(MasterHooks):
    """See MasterHooks."""

    def guest_settings(self, opts: file_lock.Opts) -> BackupSchedules:
        """See MasterHooks."""
        from saltvirt.backup.manager.schedules import BackupSchedules  # noqa: PLC0415 - who uses it pays for it

        return BackupSchedules(opts)

    def describe_guest(self, fleet: Fleet, name: str, uuid: str) -> dict[str, Any]:
        """See MasterHooks. Nothing without a configured target."""
        try:
            if not settings.mapping(settings.of_master(fleet.opts), "backup:targets"):
                return {}
        except errors.InvalidInput as exc:
            return {"backups": None, "unknown": {"backups": exc.text}}
        from saltvirt.backup.manager import guest_backups  # noqa: PLC0415 - who uses it pays for it

        return guest_backups.describe(fleet, name, uuid)


HOOKS = BackupMasterHooks()
