"""Everything a user asked for of one guest."""

from dataclasses import dataclass, field, fields

from saltvirt import names
from saltvirt.errors import InvalidInput
from saltvirt.spec import chardev, devices, profiles
from saltvirt.spec import cpu as cpus
from saltvirt.spec import features as feature
from saltvirt.spec import graphics as display
from saltvirt.spec import memory as memories
from saltvirt.spec import values as v
from saltvirt.spec.base import part, unknown
from saltvirt.spec.boot import BootSpec, boot_devices
from saltvirt.spec.clock import ClockSpec
from saltvirt.spec.deploy import DeploySpec
from saltvirt.spec.disk import DiskSpec
from saltvirt.spec.hostdev import HostDeviceSpec
from saltvirt.spec.nic import NicSpec
from saltvirt.spec.numatune import NumaTuneSpec

ON_STOP = ("destroy", "restart", "preserve", "rename-restart")
ON_CRASH = (*ON_STOP, "coredump-destroy", "coredump-restart")


def _optional(parse):
    return lambda value, what: None if value is None else parse(value, what)


def _key(parse):
    return field(default=None, metadata={"parse": parse})


@dataclass
class GuestSpec:
    """A guest as asked for. ``None`` everywhere means: not said.

    disks, nics: None leaves what is (in an update), a list is all there shall be.
    """

    name: str
    cpu: cpus.CpuSpec = _key(cpus.parse)
    memory: memories.MemorySpec = _key(memories.parse)
    hypervisor: str | None = _key(_optional(v.word))
    os_type: str | None = _key(_optional(v.choice("hvm", "xen", "xenpvh", "linux", "exe")))
    arch: str | None = _key(_optional(v.word))
    machine: str | None = _key(_optional(v.word))
    title: str | None = _key(_optional(v.text))
    description: str | None = _key(_optional(v.text))
    boot: BootSpec | None = _key(_optional(part(BootSpec)))
    boot_dev: list | None = _key(_optional(boot_devices))
    numatune: NumaTuneSpec | None = _key(_optional(part(NumaTuneSpec)))
    features: dict | None = _key(feature.parse)
    clock: ClockSpec | None = _key(_optional(part(ClockSpec)))
    on_poweroff: str | None = _key(_optional(v.choice(*ON_STOP)))
    on_reboot: str | None = _key(_optional(v.choice(*ON_STOP)))
    on_crash: str | None = _key(_optional(v.choice(*ON_CRASH)))
    graphics: display.GraphicsSpec | None = _key(display.parse)
    serials: list | None = _key(chardev.parse)
    consoles: list | None = _key(chardev.parse)
    host_devices: list | None = _key(_optional(v.list_of(HostDeviceSpec.parse_any)))
    tpm: devices.TpmSpec | str | None = _key(devices.tpm)
    rng: devices.RngSpec | str | None = _key(devices.rng)
    watchdog: devices.WatchdogSpec | str | None = _key(devices.watchdog)
    memballoon: devices.BalloonSpec | str | None = _key(devices.memballoon)
    guest_agent: bool | None = _key(_optional(v.boolean))
    autostart: bool | None = _key(_optional(v.boolean))
    metadata: dict | None = _key(_optional(v.map_of(v.word, v.text)))
    disks: list[DiskSpec] | None = None
    nics: list[NicSpec] | None = None
    deploy: DeploySpec = field(default_factory=DeploySpec)


# Salt's words for what has another name here
_ALIASES = {
    "mem": "memory",
    "hypervisor_features": "features",
    "vm_type": "hypervisor",
    "hypervisor_type": "hypervisor",
}
_SHAPED = {"disk", "disk_profile", "disks", "nic", "nic_profile", "interfaces"}
_SHORT = {"enable_vnc", "serial_type", "stop_on_reboot", "kvm_hidden"}
_ABSENT = object()


def _fields():
    return {f.name: f.metadata["parse"] for f in fields(GuestSpec) if f.metadata}


def arguments():
    """All argument names that :func:`parse` takes, besides ``name``."""
    plain = set(_fields()) - set(_ALIASES.values()) | {"hypervisor"}
    return sorted(plain | set(_ALIASES) | _SHAPED | _SHORT | set(DeploySpec.keys()))


def parse(name, cpu=None, mem=None, *, known_profiles=None, update=False, hypervisor=None, **more):
    """A GuestSpec from the arguments of virt.init, virt.update, virt.defined, virt.running.

    cpu: a number, or a dictionary. mem: MiB, a size with a unit, or a dictionary.
    known_profiles: :class:`saltvirt.spec.profiles.Profiles`.
    update: for a guest that exists: what is not said stays, no profile applies by itself.
    hypervisor: kvm, qemu, xen, lxc, …; None lets the host's capabilities decide.
    more: every other argument by its name, see :func:`arguments`.

    Raises InvalidInput, which names the argument.
    """
    spec = GuestSpec(names.guest(name))
    more = {key: value for key, value in more.items() if not key.startswith("__")}
    for word in more:
        if word not in arguments():
            raise unknown(word, arguments(), "argument")
    given = {"cpu": cpu, "mem": mem, "hypervisor": hypervisor, **more}
    for word, value in given.items():
        target = _ALIASES.get(word, word)
        if target in _fields() and (value is not None or getattr(spec, target) is None):
            setattr(spec, target, _fields()[target](value, word))
    _shorthands(spec, more)
    _devices(spec, more, known_profiles or profiles.Profiles(), update)
    deploying = set(DeploySpec.keys())
    deploy = {key: value for key, value in more.items() if key in deploying}
    spec.deploy = DeploySpec.parse(deploy, "init")
    _agree(spec)
    if not update:
        _complete(spec)
    return spec


def _shorthands(spec, more):
    """The arguments that stand for a longer one."""
    if v.boolean(more.get("enable_vnc") or False, "enable_vnc") and spec.graphics is None:
        spec.graphics = display.parse("vnc")
    kind = more.get("serial_type")
    if kind not in (None, "None", "none", "") and spec.serials is None:
        spec.serials = chardev.parse({"type": kind}, "serial_type")
        spec.consoles = spec.consoles or chardev.parse({"type": kind}, "serial_type")
    if v.boolean(more.get("stop_on_reboot") or False, "stop_on_reboot"):
        if spec.on_reboot not in (None, "destroy"):
            raise InvalidInput("stop_on_reboot and on_reboot contradict each other")
        spec.on_reboot = "destroy"
    if more.get("kvm_hidden") is not None:
        hidden = v.boolean(more["kvm_hidden"], "kvm_hidden")
        spec.features = {**(spec.features or {}), "kvm_hidden": hidden}


def _profile(more, short, update):
    """The profile's name: ``disk`` or ``disk_profile``; the default one unless told none."""
    for word in (f"{short}_profile", short):
        value = more.get(word, _ABSENT)
        if value is not _ABSENT and (value is not None or word == short):
            return value
    return None if update else profiles.DEFAULT


def _devices(spec, more, known, update):
    for short, extra, target, cls in (
        ("disk", "disks", "disks", DiskSpec),
        ("nic", "interfaces", "nics", NicSpec),
    ):
        profile, own = _profile(more, short, update), more.get(extra)
        if profile is None and own is None:
            setattr(spec, target, None if update else [])
            continue
        if own is not None and not isinstance(own, list | tuple):
            raise InvalidInput(f"{extra} must be a list of dictionaries, not {own!r}")
        if short == "disk":
            found = profiles.disks(known, profile, own)
        else:
            found = profiles.nics(known, profile, own, spec.hypervisor)
        setattr(spec, target, _parsed(cls, found, extra))


def _parsed(cls, found, what):
    result = []
    for at, item in enumerate(found):
        label = item.get("name", at) if isinstance(item, dict) else at
        result.append(cls.parse(item, f"{what}:{label}"))
    seen = [item.name for item in result if item.name]
    twice = {name for name in seen if seen.count(name) > 1}
    if twice:
        raise InvalidInput(f"{what}: the name {sorted(twice)[0]!r} is there twice")
    return result


def _agree(spec):
    targets = [disk.target for disk in spec.disks or () if disk.target]
    for target in targets:
        if targets.count(target) > 1:
            raise InvalidInput(f"disks: the target {target} is asked for twice")
    devices_say = [
        item.name for item in (*(spec.disks or ()), *(spec.nics or ())) if item.boot_order
    ]
    if spec.boot_dev and devices_say:
        raise InvalidInput(
            f"boot_dev and the boot_order of {devices_say[0]} exclude each other: give one"
        )


def _complete(spec):
    """What a new guest must have."""
    if not spec.cpu.maximum:
        raise InvalidInput("cpu is missing: the number of virtual CPUs")
    if not spec.memory.boot_kib:
        raise InvalidInput("mem is missing: the memory in MiB")
    image = spec.deploy.image
    disks = [disk for disk in spec.disks if disk.device == "disk"]
    if image and disks and not disks[0].image:
        disks[0].image = image
        disks[0].image_hash = disks[0].image_hash or spec.deploy.image_hash
        if spec.deploy.overlay:
            disks[0].overlay_image = True
    elif image and not disks:
        raise InvalidInput("image needs a disk to go on: the disk profile has none")
