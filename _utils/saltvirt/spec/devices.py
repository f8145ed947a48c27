"""The user's arguments for devices of which a guest has at most one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput
from saltvirt.spec import values
from saltvirt.spec.base import Spec, key
from saltvirt.xml.devices.controller import Controller
from saltvirt.xml.devices.iommu import Iommu
from saltvirt.xml.devices.memballoon import MemBalloon
from saltvirt.xml.devices.rng import Rng
from saltvirt.xml.devices.tpm import Tpm
from saltvirt.xml.devices.video import Video

if TYPE_CHECKING:
    from saltvirt.spec.base import P, Parser

NONE = "none"
# libvirt chooses the value at each start
AUTO = "auto"


@dataclass
class TpmSpec(Spec):
    """``tpm``: True, a model, or a dictionary."""

    model: str | None = key(values.word)
    type: str | None = key(values.choice("emulator", "passthrough"))
    version: str | None = key(values.choice("1.2", "2.0"))
    persistent_state: bool | None = key(values.boolean, xml=Tpm.persistent_state)
    device: str | None = key(values.path, xml=Tpm.device_path)

    def check(self, argument: str) -> None:
        if self.device and self.type != "passthrough":
            raise InvalidInput(f"{argument}: device is for type passthrough")


@dataclass
class RngSpec(Spec):
    """``rng``: True, the host's device, or a dictionary; rate in bytes for each period (ms)."""

    model: str | None = key(values.word)
    backend: str | None = key(values.choice("random", "builtin"))
    source: str | None = key(values.path)
    rate_bytes: int | None = key(values.count, name="rate", xml=Rng.rate_bytes)
    period_ms: int | None = key(values.count, name="period", xml=Rng.rate_period_ms)


@dataclass
class WatchdogSpec(Spec):
    """``watchdog``: a model, or a dictionary."""

    model: str | None = key(values.choice("i6300esb", "ib700", "diag288", "itco", NONE))
    action: str | None = key(
        values.choice("reset", "shutdown", "poweroff", "pause", NONE, "dump", "inject-nmi"),
    )


@dataclass
class BalloonSpec(Spec):
    """``memballoon``: a model (``none``: no balloon), or a dictionary."""

    model: str | None = key(values.word)
    autodeflate: bool | None = key(values.boolean, xml=MemBalloon.autodeflate)
    free_page_reporting: bool | None = key(values.boolean, xml=MemBalloon.free_page_reporting)
    period_s: int | None = key(values.count, name="period", xml=MemBalloon.stats_period_s)


@dataclass
class PanicSpec(Spec):
    """``panic``: True, a model, or a dictionary."""

    model: str | None = key(values.choice("isa", "hyperv", "pseries", "s390", "pvpanic"))


@dataclass
class SoundSpec(Spec):
    """``sound``: True, a model, or a dictionary."""

    model: str | None = key(
        values.choice(
            "ich9", "ich7", "ich6", "ac97", "es1370", "sb16", "pcspk", "usb", "virtio", NONE
        )
    )


@dataclass
class VideoSpec(Spec):
    """``video``: True, a model (``none``: no graphics card), or a dictionary; vram in MiB."""

    model: str | None = key(
        values.choice(
            "virtio", "vga", "qxl", "bochs", "cirrus", "ramfb", "vmvga", "xen", "gop", NONE
        )
    )
    vram_kib: int | None = key(values.kib, name="vram", xml=Video.vram_kib)
    heads: int | None = key(values.count, xml=Video.heads)
    accel3d: bool | None = key(values.boolean, xml=Video.accel3d)


@dataclass
class IommuSpec(Spec):
    """``iommu``: True, a model, or a dictionary."""

    model: str | None = key(values.choice("intel", "virtio", "smmuv3"))
    intremap: bool | None = key(values.boolean, xml=Iommu.intremap)
    caching_mode: bool | None = key(values.boolean, xml=Iommu.caching_mode)
    eim: bool | None = key(values.boolean, xml=Iommu.eim)
    iotlb: bool | None = key(values.boolean, xml=Iommu.iotlb)
    aw_bits: int | None = key(values.number(32, 64), xml=Iommu.aw_bits)


# lower ones mean the hypervisor and the host
_FIRST_CID, _LAST_CID = 3, 0xFFFFFFFE


def _cid(value: Any, argument: str) -> int | str:
    """A number, or ``auto``."""
    if str(value) == AUTO:
        return AUTO
    return values.number(_FIRST_CID, _LAST_CID)(value, argument)


@dataclass
class VsockSpec(Spec):
    """``vsock``: True, a CID, or a dictionary."""

    model: str | None = key(
        values.choice("virtio", "virtio-transitional", "virtio-non-transitional")
    )
    cid: int | str | None = key(_cid)


@dataclass
class ScsiControllerSpec(Spec):
    """``scsi_controller``: a model, or a dictionary."""

    model: str | None = key(
        values.choice(
            "virtio-scsi", "virtio-transitional", "virtio-non-transitional", "lsilogic",
            "lsisas1068", "lsisas1078", "vmpvscsi", "ibmvscsi", "buslogic",
        )
    )  # fmt: skip
    queues: int | None = key(values.count, xml=Controller.queues)
    iothread_id: int | None = key(values.count, xml=Controller.iothread)


def parser(cls: type[P], shorthand_key: str) -> Parser[P | str | None]:
    """A parser of a device: a dictionary, the value of ``shorthand_key`` only, True for defaults,
    False for no device.

    The parser returns None if nothing was given, ``NONE`` if the device must not exist.
    """

    def parse(value: Any, argument: str) -> P | str | None:
        if value is None:
            return None
        word = str(value).lower()
        if word in (NONE, "false", "no", "off"):
            return NONE
        if word in ("true", "yes", "on"):
            return cls()
        return cls.parse(value if isinstance(value, dict) else {shorthand_key: value}, argument)

    return parse


tpm = parser(TpmSpec, "model")
rng = parser(RngSpec, "source")
watchdog = parser(WatchdogSpec, "model")
memballoon = parser(BalloonSpec, "model")
panic = parser(PanicSpec, "model")
sound = parser(SoundSpec, "model")
video = parser(VideoSpec, "model")
iommu = parser(IommuSpec, "model")
vsock = parser(VsockSpec, "cid")
scsi_controller = parser(ScsiControllerSpec, "model")
