"""What a host answers when a guest is to be started, stopped or paused by its name."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.schema import Message


@dataclass(frozen=True)
class PowerChange(Message):
    """What `virt.power` answers. before: libvirt's word for the guest's state, None where the host
    has no such guest, or where it cannot say alone that this one is meant. after: the same when the
    verb was done; None: nothing was."""

    before: str | None
    after: str | None = None
