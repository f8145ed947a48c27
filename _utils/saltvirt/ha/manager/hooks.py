"""What high availability does for the verbs of a master, if it is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.ha.manager import config
from saltvirt.operations.cluster.hooks import MasterHooks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from saltvirt.fleet.client import Fleet
    from saltvirt.ha.manager.cluster_provider import ClusterHaProvider
    from saltvirt.operations.journal.activity_log import LogEntry
    from saltvirt.system import file_lock


class HaMasterHooks(MasterHooks):
    """See MasterHooks."""

    def off_proofs(self, opts: file_lock.Opts) -> dict[str, str]:
        """See MasterHooks. Empty if the engine is not reliable. Raises OperationFailed for a
        damaged file."""
        if not config.is_configured(opts):
            return {}
        from saltvirt.ha.manager import status_file  # noqa: PLC0415
        from saltvirt.ha.model.registry import FENCED  # noqa: PLC0415 - who uses it pays for it

        engine = status_file.load(opts)
        hosts = {} if engine.problem else engine.registry.hosts
        return {name: record.reason for name, record in hosts.items() if record.state == FENCED}

    def ha_provider(self, opts: file_lock.Opts) -> ClusterHaProvider | None:
        """See MasterHooks."""
        if not config.is_configured(opts):
            return None
        from saltvirt.ha.manager.cluster_provider import ClusterHaProvider  # noqa: PLC0415 - who uses it pays for it

        return ClusterHaProvider(opts)

    def log_entries(self, opts: file_lock.Opts) -> Iterable[LogEntry]:
        """See MasterHooks: the decisions in the journal."""
        if not config.is_configured(opts):
            return ()
        from saltvirt.ha.manager import log_entries  # noqa: PLC0415 - who uses it pays for it

        return log_entries.read(opts)

    def describe_guest(self, fleet: Fleet, name: str, uuid: str) -> dict[str, Any]:
        """See MasterHooks: the settings of a managed guest."""
        if not config.is_configured(fleet.opts):
            return {}
        from saltvirt.ha.manager.desired_state import DesiredStateStore  # noqa: PLC0415 - who uses it pays for it

        try:
            guest = DesiredStateStore(fleet.opts).read().guests.get(name)
        except errors.VirtError as exc:
            return {"ha": None, "unknown": {"ha": exc.text}}
        if guest is None:
            return {"ha": None}
        return {"ha": {"state": guest.desired_state, "priority": guest.priority}}


HOOKS = HaMasterHooks()
