"""Answers about created and renamed guests."""

from __future__ import annotations

from dataclasses import dataclass, field

from saltvirt.schema import Message, optional


@dataclass(frozen=True, kw_only=True)
class GuestKey(Message):
    """A guest in an answer. pub_key: PEM of its minion's public key; None if it was not seeded, or
    not again."""

    name: str
    host: str = ""
    pub_key: str | None = None


@dataclass(frozen=True)
class CreatedDisk(Message):
    """A disk of a new guest. size_bytes: its virtual size; None if the disk existed. pool, volume:
    of a volume."""

    target: str
    path: str | None = None
    format: str | None = None
    size_bytes: int | None = None
    pool: str | None = optional(None)
    volume: str | None = optional(None)


@dataclass(frozen=True)
class CreatedNic(Message):
    """A network interface of a new guest. source: its network or bridge."""

    mac: str | None = None
    type: str | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class CreatedGuest(GuestKey):
    """Answer of `virt.init` and `virt.clone`. state: libvirt's name. graphics: attributes of the
    display. warnings: for the operator."""

    uuid: str = ""
    state: str = ""
    disks: tuple[CreatedDisk, ...]
    nics: tuple[CreatedNic, ...] = ()
    graphics: dict[str, str | None] | None = None
    warnings: tuple[str, ...] = optional(())


@dataclass(frozen=True, kw_only=True)
class RenamedGuest(GuestKey):
    """Answer of `virt.rename`. disks: the new paths of renamed disks. unrenamed: path of each disk
    that is named after the guest and keeps its name, to the reason. warnings: for the operator."""

    uuid: str = ""
    state: str = ""
    disks: tuple[str, ...]
    unrenamed: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class PlannedGuest(Message):
    """Answer of `virt.init` of a hypervisor to ``definition=True`` with ``test=True``. definition:
    its XML, without passwords. bases: target of a disk to its backing image."""

    definition: str
    bases: dict[str, str] = field(default_factory=dict)
