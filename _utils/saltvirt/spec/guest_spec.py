"""The specification of a guest, as a user writes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from saltvirt.spec import chardev, devices, values
from saltvirt.spec.base import nested
from saltvirt.spec.boot import BootSpec, boot_devices
from saltvirt.spec.clock import ClockSpec
from saltvirt.spec.cpu import CpuSpec, parse_cpu
from saltvirt.spec.deploy import DeploySpec
from saltvirt.spec.disk import DiskSpec
from saltvirt.spec.features import parse_features
from saltvirt.spec.filesystem import FilesystemSpec
from saltvirt.spec.filesystem import parse as parse_filesystems
from saltvirt.spec.graphics import GraphicsSpec, parse_graphics
from saltvirt.spec.hostdev import HostDeviceSpec
from saltvirt.spec.input import InputSpec
from saltvirt.spec.input import parse as parse_inputs
from saltvirt.spec.memory import MemorySpec, parse_memory
from saltvirt.spec.nic import NicSpec
from saltvirt.spec.numatune import NumaTuneSpec
from saltvirt.spec.sysinfo import SysinfoSpec

if TYPE_CHECKING:
    from saltvirt.spec.base import Parser

T = TypeVar("T")


ON_STOP = ("destroy", "restart", "preserve", "rename-restart")


ON_CRASH = (*ON_STOP, "coredump-destroy", "coredump-restart")


def _optional(parse: Parser[T]) -> Parser[T | None]:
    return lambda value, argument: None if value is None else parse(value, argument)


def _key(parse: Parser[Any]) -> Any:
    return field(default=None, metadata={"parse": parse})


def _hypervisor(value: Any, argument: str) -> str:
    """libvirt's domain type; ``esxi`` and ``esx`` are aliases of vmware."""
    return {"esxi": "vmware", "esx": "vmware"}.get(str(value)) or values.word(value, argument)


def _os_type(value: Any, argument: str) -> str:
    """hvm, xen, xenpvh or exe; ``linux`` is an alias of xen."""
    return {"linux": "xen"}.get(str(value)) or values.choice("hvm", "xen", "xenpvh", "exe")(
        value, argument
    )


def _os(value: Any, argument: str) -> str:
    """A family of operating systems, or a short name of one."""
    return values.word(value, argument).lower()


@dataclass
class GuestSpec:
    """The requested guest. ``None`` means "not given".

    disks, nics: None: unchanged (in an update); a list is complete.
    """

    name: str
    cpu: CpuSpec = _key(parse_cpu)
    memory: MemorySpec = _key(parse_memory)
    hypervisor: str | None = _key(_optional(_hypervisor))
    os_type: str | None = _key(_optional(_os_type))
    os: str | None = _key(_optional(_os))
    arch: str | None = _key(_optional(values.word))
    machine: str | None = _key(_optional(values.word))
    title: str | None = _key(_optional(values.title))
    description: str | None = _key(_optional(values.short(values.DESCRIPTION_CHARS)))
    boot: BootSpec | None = _key(_optional(nested(BootSpec)))
    boot_dev: list[str] | None = _key(_optional(boot_devices))
    sysinfo: SysinfoSpec | None = _key(_optional(nested(SysinfoSpec)))
    numatune: NumaTuneSpec | None = _key(_optional(nested(NumaTuneSpec)))
    features: dict[str, Any] | None = _key(parse_features)
    clock: ClockSpec | None = _key(_optional(nested(ClockSpec)))
    on_poweroff: str | None = _key(_optional(values.choice(*ON_STOP)))
    on_reboot: str | None = _key(_optional(values.choice(*ON_STOP)))
    on_crash: str | None = _key(_optional(values.choice(*ON_CRASH)))
    graphics: GraphicsSpec | None = _key(parse_graphics)
    inputs: list[InputSpec] | None = _key(_optional(parse_inputs))
    serials: list[chardev.CharSpec] | None = _key(chardev.parse)
    consoles: list[chardev.CharSpec] | None = _key(chardev.parse)
    host_devices: list[HostDeviceSpec] | None = _key(
        _optional(values.list_of(HostDeviceSpec.parse_any))
    )
    filesystems: list[FilesystemSpec] | None = _key(_optional(parse_filesystems))
    tpm: devices.TpmSpec | str | None = _key(devices.tpm)
    rng: devices.RngSpec | str | None = _key(devices.rng)
    watchdog: devices.WatchdogSpec | str | None = _key(devices.watchdog)
    memballoon: devices.BalloonSpec | str | None = _key(devices.memballoon)
    panic: devices.PanicSpec | str | None = _key(devices.panic)
    sound: devices.SoundSpec | str | None = _key(devices.sound)
    video: devices.VideoSpec | str | None = _key(devices.video)
    iommu: devices.IommuSpec | str | None = _key(devices.iommu)
    vsock: devices.VsockSpec | str | None = _key(devices.vsock)
    scsi_controller: devices.ScsiControllerSpec | str | None = _key(devices.scsi_controller)
    pcie_ports: int | None = _key(_optional(values.number(1, 32)))
    guest_agent: bool | None = _key(_optional(values.boolean))
    autostart: bool | None = _key(_optional(values.boolean))
    metadata: dict[str, str] | None = _key(_optional(values.map_of(values.word, values.text)))
    disks: list[DiskSpec] | None = None
    nics: list[NicSpec] | None = None
    deploy: DeploySpec = field(default_factory=DeploySpec)
