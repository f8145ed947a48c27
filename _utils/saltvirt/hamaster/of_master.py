"""What the verbs that make and move guests are handed, where high availability is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.hamaster import config

if TYPE_CHECKING:
    from saltvirt.hamaster.keeper import HaKeeper
    from saltvirt.operations import held


def off(opts: held.Opts) -> dict[str, str]:
    """Host to the proof that it is off, of those of which there is one now; none where nothing is
    configured, or the engine cannot be relied on. Raises OperationFailed for a damaged file."""
    if not config.is_configured(opts):
        return {}
    from saltvirt.ha.registry import FENCED  # noqa: PLC0415 - who uses it pays for it
    from saltvirt.hamaster import seen  # noqa: PLC0415

    engine = seen.look(opts)
    hosts = {} if engine.why else engine.registry.hosts
    return {name: one.why for name, one in hosts.items() if one.state == FENCED}


def keeper(opts: held.Opts) -> HaKeeper | None:
    """The Keeper of the master whose options these are; None where nothing is configured."""
    if not config.is_configured(opts):
        return None
    from saltvirt.hamaster.keeper import HaKeeper  # noqa: PLC0415 - who uses it pays for it

    return HaKeeper(opts)


def disarmed(opts: held.Opts) -> str:
    """That all is disarmed, in one line for who looks at the cloud; nothing where it is armed, not
    configured, or not to be learned: virt.ha_status says why."""
    try:
        found = keeper(opts)
        return found.rests() if found else ""
    except errors.VirtError:
        return ""
