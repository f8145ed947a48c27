"""The user's arguments for a storage pool."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key, mapping, nested, unknown
from saltvirt.spec.disk import HostSpec, host
from saltvirt.spec.storage import PermissionsSpec
from saltvirt.xml.devices.address import PciAddress
from saltvirt.xml.storage.pool import Pool
from saltvirt.xml.storage.pool_source import Adapter, PoolDevice, PoolSource

_NFS_VERSION = re.compile(r"[2-9](\.\d)?")
# of mount.cifs: also as user=NAME%PASSWORD
_PASSWORD = re.compile(r"pass(word)?2?(=|$)|user(name)?=.*%", re.IGNORECASE)


@dataclass(frozen=True)
class PoolType:
    """The required and optional arguments of a type of pool, and its default target."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    target: str | None = None


_HOSTS, _NAME, _DEVICES = "source_hosts", "source_name", "source_devices"
_VERSION, _OPTIONS = "source_protocol_ver", "source_mount_opts"
TYPES = {
    "dir": PoolType(("target",), ("source_dir",)),
    "fs": PoolType(("target", _DEVICES), ("source_format", _OPTIONS)),
    "netfs": PoolType(("target", _HOSTS, "source_dir"), ("source_format", _VERSION, _OPTIONS)),
    "logical": PoolType((), (_NAME, _DEVICES, "source_format"), "/dev/{name}"),
    "disk": PoolType((_DEVICES,), ("source_format",), "/dev"),
    "iscsi": PoolType((_HOSTS, _DEVICES), ("source_auth", "source_initiator"), "/dev/disk/by-path"),
    "iscsi-direct": PoolType((_HOSTS, _DEVICES, "source_initiator"), ("source_auth",)),
    "scsi": PoolType(("source_adapter",), (), "/dev/disk/by-path"),
    "mpath": PoolType((), (), "/dev/mapper"),
    "rbd": PoolType((_NAME,), (_HOSTS, "source_auth")),
    "gluster": PoolType((_NAME, _HOSTS), ("source_dir",)),
    "zfs": PoolType((_NAME,), (_DEVICES,)),
    "sheepdog": PoolType((_NAME, _HOSTS)),
    "vstorage": PoolType((_NAME, "target")),
}


@dataclass
class DeviceSpec(Spec):
    """A source device: a path, or for iSCSI the target's qualified name."""

    NONE_REMOVES = False

    path: str = key(values.text, xml=PoolDevice.path, required=True)
    part_separator: bool | None = key(values.boolean, xml=PoolDevice.part_separator)


def _device(value: Any, argument: str) -> DeviceSpec:
    return DeviceSpec.parse({"path": value} if isinstance(value, str) else value, argument)


@dataclass
class SecretSpec(Spec):
    """The libvirt secret that contains the password."""

    type: str | None = key(values.choice("uuid", "usage"))
    value: str | None = key(values.text)
    uuid: str | None = key(values.text)

    def check(self, argument: str) -> None:
        # Salt's documentation uses both names
        self.value = self.value or self.uuid
        if not (self.type and self.value):
            raise InvalidInput(f"{argument}: type and value are needed")


@dataclass
class PoolAuthSpec(Spec):
    """``source_auth``: a libvirt secret, or a password for a new one."""

    NONE_REMOVES = False

    type: str | None = key(values.choice("ceph", "chap"))
    username: str | None = key(values.text, required=True)
    password: str | None = key(values.secret, repr=False)
    secret: SecretSpec | None = key(nested(SecretSpec))

    def check(self, argument: str) -> None:
        if bool(self.password) == bool(self.secret):
            raise InvalidInput(f"{argument}: give either password or secret")


@dataclass
class PciSpec(Spec):
    """A PCI address, in hexadecimal."""

    domain: str | None = key(values.word, xml=PciAddress.domain)
    bus: str | None = key(values.word, xml=PciAddress.bus)
    slot: str | None = key(values.word, xml=PciAddress.slot)
    function: str | None = key(values.word, xml=PciAddress.function)


@dataclass
class ParentAddressSpec(Spec):
    """The adapter's parent, by its address."""

    NONE_REMOVES = False

    unique_id: int | None = key(values.number())
    address: PciSpec | None = key(nested(PciSpec))


@dataclass
class AdapterSpec(Spec):
    """``source_adapter``."""

    NONE_REMOVES = False

    type: str | None = key(values.choice("scsi_host", "fc_host"), xml=Adapter.type)
    name: str | None = key(values.word, xml=Adapter.name)
    parent: str | None = key(values.word, xml=Adapter.parent)
    managed: bool | None = key(values.boolean, xml=Adapter.managed)
    parent_wwnn: str | None = key(values.word, xml=Adapter.parent_wwnn)
    parent_wwpn: str | None = key(values.word, xml=Adapter.parent_wwpn)
    parent_fabric_wwn: str | None = key(values.word, xml=Adapter.parent_fabric_wwn)
    wwnn: str | None = key(values.word, xml=Adapter.wwnn)
    wwpn: str | None = key(values.word, xml=Adapter.wwpn)
    parent_address: ParentAddressSpec | None = key(nested(ParentAddressSpec))


def _protocol_version(value: Any, argument: str) -> str:
    """The version of NFS: 3, 4 or 4.2."""
    if isinstance(value, bool) or not _NFS_VERSION.fullmatch(str(value)):
        raise InvalidInput(f"{argument} {value!r} is not a version of NFS such as 4.2")
    return str(value)


def _mount_option(value: Any, argument: str) -> str:
    """One option of mount; a password would be readable by every user of the host."""
    option = values.line(value, argument)
    if "," in option:
        raise InvalidInput(f"{argument}: give each option as an item of the list")
    if _PASSWORD.match(option):
        raise InvalidInput(f"{argument}: no passwords here: use credentials=FILE")
    return option


@dataclass
class PoolSpec(Spec):
    """The arguments of pool_define, pool_update, pool_defined, pool_running."""

    NONE_REMOVES = False

    type: str = key(values.choice(*TYPES), name="ptype", xml=Pool.type)
    name: str = key(values.text, xml=Pool.name, required=True)
    target: str | None = key(values.path, xml=Pool.path)
    permissions: PermissionsSpec | None = key(nested(PermissionsSpec))
    source_devices: list[DeviceSpec] | None = key(values.list_of(_device))
    source_dir: str | None = key(values.text, xml=PoolSource.dir)
    source_initiator: str | None = key(values.text, xml=PoolSource.initiator)
    source_adapter: AdapterSpec | None = key(nested(AdapterSpec))
    source_hosts: list[HostSpec] | None = key(values.list_of(host))
    source_auth: PoolAuthSpec | None = key(nested(PoolAuthSpec))
    source_name: str | None = key(values.text, xml=PoolSource.name)
    source_format: str | None = key(values.word, xml=PoolSource.format)
    source_protocol_ver: str | None = key(_protocol_version, xml=PoolSource.protocol_version)
    source_mount_opts: list[str] | None = key(values.list_of(_mount_option))

    def check(self, argument: str) -> None:
        if not self.type:
            raise InvalidInput(f"{argument}: ptype is missing; one of {', '.join(sorted(TYPES))}")
        kind = TYPES[self.type]
        for word in kind.required:
            if not getattr(self, word):
                raise InvalidInput(f"{argument}: a pool of type {self.type} needs {word}")
        if kind.target and not self.target:
            self.target = kind.target.format(name=self.source_name or self.name)
        allowed = {*kind.required, *kind.optional}
        for word in ("source_" + n for n in _SOURCES):
            if getattr(self, word) and word not in allowed:
                raise InvalidInput(f"{argument}: a pool of type {self.type} has no {word}")
        if self.source_protocol_ver and self.source_format not in (None, "auto", "nfs"):
            raise InvalidInput(f"{argument}: source_protocol_ver is for source_format nfs")
        if self.source_dir and (self.type, self.source_format) == ("netfs", "cifs"):
            self.source_dir = self.source_dir.lstrip("/")  # a share's name
        if self.source_dir and self.type != "netfs":
            values.path(self.source_dir, f"{argument}: source_dir")
        if self.source_auth and not self.source_auth.type:
            self.source_auth.type = "ceph" if self.type == "rbd" else "chap"


_SOURCES = ("devices", "dir", "initiator", "adapter", "hosts", "auth", "name", "format",
            "protocol_ver", "mount_opts")  # fmt: skip


def parse(name: object, ptype: object, **arguments: Any) -> PoolSpec:
    """A PoolSpec from the arguments of virt.pool_define. Raises InvalidInput."""
    return PoolSpec.parse({"name": name, "ptype": ptype, **arguments}, f"pool {name}")


def from_state(name: object, ptype: object, source: Any, **arguments: Any) -> PoolSpec:
    """A PoolSpec from the arguments of a state, which has the ``source_`` arguments in a
    dictionary."""
    state_arguments = mapping(source or {}, f"pool {name}: source")
    for word in state_arguments:
        if word not in _SOURCES:
            raise unknown(word, _SOURCES, f"pool {name}: source")
    return parse(
        name, ptype, **arguments, **{f"source_{w}": item for w, item in state_arguments.items()}
    )
