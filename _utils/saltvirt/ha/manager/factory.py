"""What the verbs for creating and moving guests use, if high availability is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.ha.manager import config

if TYPE_CHECKING:
    from saltvirt.ha.manager.cluster_provider import ClusterHaProvider
    from saltvirt.system import file_lock


def off_proofs(opts: file_lock.Opts) -> dict[str, str]:
    """Return the hosts that are proven to be off, with the proof. Empty if nothing is configured,
    or if the engine is not reliable. Raises OperationFailed for a damaged file."""
    if not config.is_configured(opts):
        return {}
    from saltvirt.ha.manager import status_file  # noqa: PLC0415
    from saltvirt.ha.model.registry import FENCED  # noqa: PLC0415 - who uses it pays for it

    engine = status_file.load(opts)
    hosts = {} if engine.problem else engine.registry.hosts
    return {name: record.why for name, record in hosts.items() if record.state == FENCED}


def ha_provider(opts: file_lock.Opts) -> ClusterHaProvider | None:
    """Return the HaProvider of a master; None if nothing is configured."""
    if not config.is_configured(opts):
        return None
    from saltvirt.ha.manager.cluster_provider import ClusterHaProvider  # noqa: PLC0415 - who uses it pays for it

    return ClusterHaProvider(opts)


def disarmed(opts: file_lock.Opts) -> str:
    """Return a line that says that high availability is disarmed; empty if it is armed, not
    configured, or unknown: virt.ha_status has the reason."""
    try:
        provider = ha_provider(opts)
        return provider.idle_reason() if provider else ""
    except errors.VirtError:
        return ""
