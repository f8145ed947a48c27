"""A guest's whole definition."""

from saltvirt.xml.base import Child, Children, Element, Prop
from saltvirt.xml.devices.audio import Audio, RedirDevice
from saltvirt.xml.devices.chardev import Channel, Console, Serial
from saltvirt.xml.devices.controller import Controller
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.devices.filesystem import Filesystem
from saltvirt.xml.devices.graphics import Graphics
from saltvirt.xml.devices.hostdev import HostDevice
from saltvirt.xml.devices.input import Input
from saltvirt.xml.devices.interface import Interface
from saltvirt.xml.devices.iommu import Iommu
from saltvirt.xml.devices.memballoon import MemBalloon
from saltvirt.xml.devices.memory_device import MemoryDevice
from saltvirt.xml.devices.panic import Panic
from saltvirt.xml.devices.rng import Rng
from saltvirt.xml.devices.sound import Sound
from saltvirt.xml.devices.tpm import Tpm
from saltvirt.xml.devices.video import Video
from saltvirt.xml.devices.vsock import Vsock
from saltvirt.xml.devices.watchdog import Watchdog
from saltvirt.xml.domain.clock import Clock
from saltvirt.xml.domain.cpu import Cpu
from saltvirt.xml.domain.cputune import CpuTune
from saltvirt.xml.domain.features import Features
from saltvirt.xml.domain.memory_backing import MemoryBacking
from saltvirt.xml.domain.memtune import MemTune
from saltvirt.xml.domain.metadata import LIBOSINFO, GuestRecord
from saltvirt.xml.domain.numatune import NumaTune
from saltvirt.xml.domain.os import Os
from saltvirt.xml.domain.seclabel import SecLabel
from saltvirt.xml.domain.sysinfo import Sysinfo
from saltvirt.xml.domain.vcpu import Vcpu, VcpuState
from saltvirt.xml.kinds import INT, KIB, YES_NO


class Domain(Element):
    """``<domain>``."""

    TAG = "domain"

    type = Prop("@type")
    id = Prop("@id", INT)
    name = Prop("name")
    uuid = Prop("uuid")
    generation_id = Prop("genid")
    title = Prop("title")
    description = Prop("description")
    record = Child("metadata/" + GuestRecord.TAG, GuestRecord)
    osinfo_id = Prop(f"metadata/{{{LIBOSINFO}}}libosinfo/{{{LIBOSINFO}}}os/@id")
    max_memory_kib = Prop("maxMemory", KIB)
    memory_slots = Prop("maxMemory/@slots", INT)
    memory_kib = Prop("memory", KIB)
    current_memory_kib = Prop("currentMemory", KIB)
    memory_backing = Child("memoryBacking", MemoryBacking)
    vcpu = Child("vcpu", Vcpu)
    vcpus = Children("vcpus/vcpu", VcpuState)
    iothreads = Prop("iothreads", INT)
    cputune = Child("cputune", CpuTune)
    memtune = Child("memtune", MemTune)
    numatune = Child("numatune", NumaTune)
    bootloader = Prop("bootloader")
    bootloader_args = Prop("bootloader_args")
    sysinfos = Children("sysinfo", Sysinfo)
    os = Child("os", Os)
    features = Child("features", Features)
    cpu = Child("cpu", Cpu)
    clock = Child("clock", Clock)
    on_poweroff = Prop("on_poweroff")
    on_reboot = Prop("on_reboot")
    on_crash = Prop("on_crash")
    suspend_to_mem = Prop("pm/suspend-to-mem/@enabled", YES_NO)
    suspend_to_disk = Prop("pm/suspend-to-disk/@enabled", YES_NO)
    emulator = Prop("devices/emulator")
    disks = Children("devices/disk", Disk)
    controllers = Children("devices/controller", Controller)
    filesystems = Children("devices/filesystem", Filesystem)
    interfaces = Children("devices/interface", Interface)
    serials = Children("devices/serial", Serial)
    consoles = Children("devices/console", Console)
    channels = Children("devices/channel", Channel)
    inputs = Children("devices/input", Input)
    tpms = Children("devices/tpm", Tpm)
    graphics = Children("devices/graphics", Graphics)
    sounds = Children("devices/sound", Sound)
    audios = Children("devices/audio", Audio)
    videos = Children("devices/video", Video)
    host_devices = Children("devices/hostdev", HostDevice)
    redirdevs = Children("devices/redirdev", RedirDevice)
    watchdogs = Children("devices/watchdog", Watchdog)
    memballoon = Child("devices/memballoon", MemBalloon)
    rngs = Children("devices/rng", Rng)
    panics = Children("devices/panic", Panic)
    memory_devices = Children("devices/memory", MemoryDevice)
    iommus = Children("devices/iommu", Iommu)
    vsocks = Children("devices/vsock", Vsock)
    seclabels = Children("seclabel", SecLabel)
