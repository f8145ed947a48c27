"""What the verbs that make and move guests are handed, where high availability is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.hamaster import config

if TYPE_CHECKING:
    from saltvirt.hamaster.keeper import HaKeeper
    from saltvirt.operations import held


def keeper(opts: held.Opts) -> HaKeeper | None:
    """The Keeper of the master whose options these are; None where nothing is configured."""
    if not config.is_configured(opts):
        return None
    from saltvirt.hamaster.keeper import HaKeeper  # noqa: PLC0415 - who uses it pays for it

    return HaKeeper(opts)
