"""What a host answers when it has made a guest, or given it another name."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.schema import Message, optional


@dataclass(frozen=True, kw_only=True)
class GuestKey(Message):
    """The guest that a host answers for. pub_key: of its minion, PEM; None when it was not seeded,
    or not anew."""

    name: str
    host: str = ""
    pub_key: str | None = None


@dataclass(frozen=True)
class CreatedDisk(Message):
    """A disk of a guest that was made. size_bytes: its virtual size; None where it was there
    before. pool, volume: of a pool's volume."""

    target: str
    path: str | None = None
    format: str | None = None
    size_bytes: int | None = None
    pool: str | None = optional(None)
    volume: str | None = optional(None)


@dataclass(frozen=True)
class CreatedNic(Message):
    """A network interface of a guest that was made. source: what it is plugged into."""

    mac: str | None = None
    type: str | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class CreatedGuest(GuestKey):
    """What `virt.init` and `virt.clone` answer. state: libvirt's word. graphics: attributes of the
    display. warnings: what the operator should know."""

    uuid: str = ""
    state: str = ""
    disks: tuple[CreatedDisk, ...]
    nics: tuple[CreatedNic, ...] = ()
    graphics: dict[str, str | None] | None = None
    warnings: tuple[str, ...] = optional(())


@dataclass(frozen=True, kw_only=True)
class RenamedGuest(GuestKey):
    """What `virt.rename` answers. disks: the new paths of those that got one. kept: path of each
    that was named after the guest and keeps its name, to the reason. warnings: what the operator
    should know."""

    uuid: str = ""
    state: str = ""
    disks: tuple[str, ...]
    kept: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class PlannedGuest(Message):
    """What `virt.init` of a hypervisor answers to ``definition=True``, with ``test=True``.
    definition: its XML, without passwords. bases: target of a disk to the image that it would stand
    on."""

    definition: str
    bases: dict[str, str] = field(default_factory=dict)
