"""All of the user's arguments for a guest."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from saltvirt import names, settings
from saltvirt.spec import chardev, devices, guest_devices, profiles, rules, values
from saltvirt.spec.base import nested, unknown
from saltvirt.spec.boot import BootSpec, boot_devices
from saltvirt.spec.clock import ClockSpec
from saltvirt.spec.cpu import CpuSpec, parse_cpu
from saltvirt.spec.deploy import DeploySpec
from saltvirt.spec.disk import DiskSpec
from saltvirt.spec.features import parse_features
from saltvirt.spec.graphics import GraphicsSpec, parse_graphics
from saltvirt.spec.hostdev import HostDeviceSpec
from saltvirt.spec.memory import MemorySpec, parse_memory
from saltvirt.spec.nic import NicSpec
from saltvirt.spec.numatune import NumaTuneSpec

if TYPE_CHECKING:
    from saltvirt.spec.base import Parser, T
    from saltvirt.spec.profiles import Profiles

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
    arch: str | None = _key(_optional(values.word))
    machine: str | None = _key(_optional(values.word))
    title: str | None = _key(_optional(values.line))
    description: str | None = _key(_optional(values.text))
    boot: BootSpec | None = _key(_optional(nested(BootSpec)))
    boot_dev: list[str] | None = _key(_optional(boot_devices))
    numatune: NumaTuneSpec | None = _key(_optional(nested(NumaTuneSpec)))
    features: dict[str, Any] | None = _key(parse_features)
    clock: ClockSpec | None = _key(_optional(nested(ClockSpec)))
    on_poweroff: str | None = _key(_optional(values.choice(*ON_STOP)))
    on_reboot: str | None = _key(_optional(values.choice(*ON_STOP)))
    on_crash: str | None = _key(_optional(values.choice(*ON_CRASH)))
    graphics: GraphicsSpec | None = _key(parse_graphics)
    serials: list[chardev.CharSpec] | None = _key(chardev.parse)
    consoles: list[chardev.CharSpec] | None = _key(chardev.parse)
    host_devices: list[HostDeviceSpec] | None = _key(
        _optional(values.list_of(HostDeviceSpec.parse_any))
    )
    tpm: devices.TpmSpec | str | None = _key(devices.tpm)
    rng: devices.RngSpec | str | None = _key(devices.rng)
    watchdog: devices.WatchdogSpec | str | None = _key(devices.watchdog)
    memballoon: devices.BalloonSpec | str | None = _key(devices.memballoon)
    pcie_ports: int | None = _key(_optional(values.number(1, 32)))
    guest_agent: bool | None = _key(_optional(values.boolean))
    autostart: bool | None = _key(_optional(values.boolean))
    metadata: dict[str, str] | None = _key(_optional(values.map_of(values.word, values.text)))
    disks: list[DiskSpec] | None = None
    nics: list[NicSpec] | None = None
    deploy: DeploySpec = field(default_factory=DeploySpec)


# Salt's names of arguments that have another name here
_ALIASES = {
    "mem": "memory",
    "hypervisor_features": "features",
    "vm_type": "hypervisor",
    "hypervisor_type": "hypervisor",
}
_SHAPED = {"disk", "disk_profile", "disks", "nic", "nic_profile", "interfaces"}
_SHORTHANDS = {"enable_vnc", "serial_type", "stop_on_reboot", "kvm_hidden"}


def _fields() -> dict[str, Parser[Any]]:
    return {f.name: f.metadata["parse"] for f in fields(GuestSpec) if f.metadata}


def arguments() -> list[str]:
    """All argument names that :func:`parse` accepts, except ``name``."""
    plain = set(_fields()) - set(_ALIASES.values()) | {"hypervisor"}
    return sorted(plain | set(_ALIASES) | _SHAPED | _SHORTHANDS | set(DeploySpec.keys()))


def parse(
    name: object,
    cpu: Any = None,
    mem: Any = None,
    *,
    known_profiles: Profiles | None = None,
    update: bool = False,
    hypervisor: Any = None,
    **options: Any,
) -> GuestSpec:
    """A GuestSpec from the arguments of virt.init, virt.update, virt.defined, virt.running.

    cpu: a number, or a dictionary. mem: MiB, a size with a unit, or a dictionary. known_profiles:
    :class:`saltvirt.spec.profiles.Profiles`. update: for an existing guest: settings that are not
    given are unchanged, and no profile applies by default. hypervisor: kvm, qemu, xen, lxc and
    others; None: from the host's capabilities. options: all other arguments by name, see
    :func:`arguments`.

    Raises InvalidInput with the name of the argument.
    """
    spec = GuestSpec(names.existing_guest(name) if update else names.guest(name))
    options = settings.user_kwargs(options)
    for word in options:
        if word not in arguments():
            raise unknown(word, arguments(), "argument")
    all_options = {"cpu": cpu, "mem": mem, "hypervisor": hypervisor, **options}
    for word, value in all_options.items():
        target = _ALIASES.get(word, word)
        if target in _fields() and (value is not None or getattr(spec, target) is None):
            setattr(spec, target, _fields()[target](value, word))
    rules.shorthands(spec, options)
    guest_devices.fill(spec, options, known_profiles or profiles.Profiles(), update)
    deploying = set(DeploySpec.keys())
    deploy = {key: value for key, value in options.items() if key in deploying}
    spec.deploy = DeploySpec.parse(deploy, "init")
    rules.agree(spec)
    if not update:
        rules.complete(spec, options)
    return spec
