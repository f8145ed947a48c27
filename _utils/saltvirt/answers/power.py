"""Answer about the power of a guest."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class PowerChange(Message):
    """Answer of `virt.power`. before: libvirt's name of the guest's state, None if the host does
    not have the guest, or cannot decide alone that this guest is the requested one. after: the
    state after the operation; None: nothing was done. pending: after a reboot, the changes that
    take effect at the next start."""

    before: str | None
    after: str | None = None
    pending: tuple[str, ...] = optional(())
