"""What high availability does for the verbs of a master, if it is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.ha.manager import config
from saltvirt.operations.cluster.hooks import MasterHooks

if TYPE_CHECKING:
    from saltvirt.ha.manager.cluster_provider import ClusterHaProvider
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


HOOKS = HaMasterHooks()
