"""What backups add to the verbs of a master: the schedules of a deployment."""

from __future__ import annotations

from saltvirt.backup.manager.schedules import BackupSchedules
from saltvirt.operations.cluster.hooks import MasterHooks
from saltvirt.system import file_lock


class BackupMasterHooks(MasterHooks):
    """See MasterHooks."""

    def guest_settings(self, opts: file_lock.Opts) -> BackupSchedules:
        """See MasterHooks."""
        return BackupSchedules(opts)


HOOKS = BackupMasterHooks()
