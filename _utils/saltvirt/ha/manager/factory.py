"""What the verbs that make and move guests are handed, where high availability is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.ha.manager import config

if TYPE_CHECKING:
    from saltvirt.ha.manager.cluster_provider import ClusterHaProvider
    from saltvirt.system import file_lock


def off_proofs(opts: file_lock.Opts) -> dict[str, str]:
    """Host to the proof that it is off, of those of which there is one now; none where nothing is
    configured, or the engine cannot be relied on. Raises OperationFailed for a damaged file."""
    if not config.is_configured(opts):
        return {}
    from saltvirt.ha.manager import status_file  # noqa: PLC0415
    from saltvirt.ha.model.registry import FENCED  # noqa: PLC0415 - who uses it pays for it

    engine = status_file.load(opts)
    hosts = {} if engine.problem else engine.registry.hosts
    return {name: record.why for name, record in hosts.items() if record.state == FENCED}


def ha_provider(opts: file_lock.Opts) -> ClusterHaProvider | None:
    """The Keeper of the master whose options these are; None where nothing is configured."""
    if not config.is_configured(opts):
        return None
    from saltvirt.ha.manager.cluster_provider import ClusterHaProvider  # noqa: PLC0415 - who uses it pays for it

    return ClusterHaProvider(opts)


def disarmed(opts: file_lock.Opts) -> str:
    """That all is disarmed, in one line for who looks at the cloud; nothing where it is armed, not
    configured, or not to be learned: virt.ha_status says why."""
    try:
        provider = ha_provider(opts)
        return provider.idle_reason() if provider else ""
    except errors.VirtError:
        return ""
