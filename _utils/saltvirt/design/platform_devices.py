"""Panic device, sound card, graphics card, IOMMU, vsock and SCSI controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design import disks
from saltvirt.design.caps import X86
from saltvirt.design.put import clear, is_given, put
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.spec.devices import NONE, VideoSpec
from saltvirt.xml.devices.controller import Controller
from saltvirt.xml.devices.iommu import Iommu
from saltvirt.xml.devices.panic import Panic
from saltvirt.xml.devices.sound import Sound
from saltvirt.xml.devices.video import Video
from saltvirt.xml.devices.vsock import Vsock

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.devices import IommuSpec, PanicSpec, ScsiControllerSpec, SoundSpec, VsockSpec
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain

# the widths of addresses that QEMU accepts
_INTEL_AW_BITS = (39, 48)
_PANIC_MODELS = {"ppc64": "pseries", "ppc64le": "pseries", "s390x": "s390"}


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply a GuestSpec's panic, sound, video, iommu, vsock and scsi_controller to a domain."""
    for word in ("panic", "sound", "video", "iommu", "vsock", "scsi_controller"):
        if getattr(spec, word) not in (None, NONE) and not context.qemu:
            raise Unsupported(f"{word}: guests of {context.virt_type} have none")
    if spec.panic is not None:
        _panic(spec.panic, domain, context)
    if spec.sound is not None:
        _sound(spec.sound, domain)
    if spec.video is not None:
        _video(spec.video, domain, context)
    if spec.iommu is not None:
        _iommu(spec.iommu, domain, context)
    if spec.vsock is not None:
        _vsock(spec.vsock, domain)
    if spec.scsi_controller is not None:
        _scsi_controller(spec.scsi_controller, domain)


def _panic(spec: PanicSpec | str, domain: Domain, context: Context) -> None:
    if isinstance(spec, str):  # no such device
        domain.panics = []
        return
    arch = context.guest.arch
    default_model = "isa" if arch in X86 else _PANIC_MODELS.get(arch, "pvpanic")
    panic = domain.panics[0] if len(domain.panics) else domain.panics.append(Panic())
    model = spec.model or panic.model or default_model
    if panic.model and panic.model != model:
        panic.address = None  # on another bus
    panic.model = model


def _sound(spec: SoundSpec | str, domain: Domain) -> None:
    if isinstance(spec, str) or spec.model == NONE:
        domain.sounds = []
        return
    default_model = "ich9" if _is_q35(domain) else "ich6"
    sound = domain.sounds[0] if len(domain.sounds) else None
    model = spec.model or (sound and sound.model) or default_model
    if sound is None or sound.model != model:
        # what else a card has, such as its codecs, belongs to its model
        domain.sounds = [Sound(model=model)]


def _video(spec: VideoSpec | str, domain: Domain, context: Context) -> None:
    if isinstance(spec, str):
        spec = VideoSpec(model=NONE)  # without the element, libvirt adds a card to each display
    video = domain.videos[0] if len(domain.videos) else None
    existing_model = video.model if video is not None and video.model != NONE else None
    model = spec.model or existing_model or _video_model(context)
    if not context.allows("video", "modelType", model, unknown=True):
        raise Unsupported(f"video: this host's guests have no {model}")
    if video is None or video.model != model:
        # memory and heads belong to the model
        domain.videos = [Video(model=model)]
        video = domain.videos[0]
    if model == NONE:
        clear(video, VideoSpec)
    else:
        put(video, spec)
        if is_given(spec.vram_kib):
            video.vram_kib = 1 << (spec.vram_kib - 1).bit_length()  # as libvirt rounds it
    if is_given(spec.accel3d) and spec.accel3d and context.qemu:
        _require_opengl(video, domain)


def _require_opengl(video: Video, domain: Domain) -> None:
    """Raise InvalidInput if QEMU cannot accelerate the graphics card."""
    if video.model != "virtio":
        raise InvalidInput(f"video: accel3d needs model: virtio, not {video.model}")
    if not any(display.type == "egl-headless" or display.gl for display in domain.graphics):
        raise InvalidInput("video: accel3d needs a display with OpenGL: graphics: egl-headless")


def _video_model(context: Context) -> str:
    models = ("virtio", "vga", "cirrus")
    return next((name for name in models if context.allows("video", "modelType", name)), "vga")


def _iommu(spec: IommuSpec | str, domain: Domain, context: Context) -> None:
    if isinstance(spec, str):  # no such device
        domain.iommus = []
        return
    default_model = "intel" if context.guest.arch in X86 else "smmuv3"
    iommu = domain.iommus[0] if len(domain.iommus) else None
    model = spec.model or (iommu and iommu.model) or default_model
    if iommu is None or iommu.model != model:
        # the settings and the address belong to the model
        domain.iommus = [Iommu(model=model)]
        iommu = domain.iommus[0]
    if context.guest.arch in X86 and not _is_q35(domain):
        raise Unsupported(f"iommu: machine {domain.os.machine} has none: give machine: q35")
    put(iommu, spec)
    if model == "intel" and iommu.aw_bits not in (None, *_INTEL_AW_BITS):
        widths = " or ".join(map(str, _INTEL_AW_BITS))
        raise InvalidInput(f"iommu: aw_bits of the model intel must be {widths}")
    if iommu.intremap or iommu.eim:
        domain.features.ioapic = "qemu"  # KVM's own cannot remap interrupts


def _vsock(spec: VsockSpec | str, domain: Domain) -> None:
    if isinstance(spec, str):  # no such device
        domain.vsocks = []
        return
    vsock = domain.vsocks[0] if len(domain.vsocks) else domain.vsocks.append(Vsock())
    vsock.model = spec.model or vsock.model or "virtio"
    if isinstance(spec.cid, int):
        vsock.auto, vsock.cid = False, spec.cid
    elif spec.cid is not None or vsock.cid is None:
        vsock.auto, vsock.cid = True, None


def _scsi_controller(spec: ScsiControllerSpec | str, domain: Domain) -> None:
    controllers = [item for item in domain.controllers if item.type == "scsi"]
    if isinstance(spec, str):  # no such device
        if disks.on_scsi(domain):
            raise InvalidInput("scsi_controller: the guest has disks or devices on it")
        for item in controllers:
            domain.controllers.remove(item)
        return
    new_controller = Controller(type="scsi", index=0)
    controller = controllers[0] if controllers else domain.controllers.append(new_controller)
    controller.model = spec.model or controller.model or "virtio-scsi"
    put(controller, spec)
    if controller.iothread and controller.iothread > (domain.iothreads or 0):
        raise InvalidInput(
            f"scsi_controller: iothread_id {controller.iothread}: the guest has "
            f"{domain.iothreads or 0} iothreads, set cpu: iothreads"
        )


def _is_q35(domain: Domain) -> bool:
    return "q35" in (domain.os.machine or "")
