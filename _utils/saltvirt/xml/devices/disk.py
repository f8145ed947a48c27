"""A disk, CD drive, floppy or LUN of a guest."""

from __future__ import annotations

from saltvirt.xml.base import Child, Prop
from saltvirt.xml.device import Device
from saltvirt.xml.devices.disk_backing import BackingStore
from saltvirt.xml.devices.disk_source import DiskSource
from saltvirt.xml.devices.iotune import IoTune
from saltvirt.xml.kinds import FLAG, INT, ON_OFF


class Disk(Device):
    """``<disk>``."""

    TAG = "disk"

    type = Prop("@type")
    device = Prop("@device")
    snapshot = Prop("@snapshot")
    driver_name = Prop("driver/@name")
    driver_type = Prop("driver/@type")
    cache = Prop("driver/@cache")
    io = Prop("driver/@io")
    discard = Prop("driver/@discard")
    detect_zeroes = Prop("driver/@detect_zeroes")
    error_policy = Prop("driver/@error_policy")
    rerror_policy = Prop("driver/@rerror_policy")
    iothread = Prop("driver/@iothread", INT)
    queues = Prop("driver/@queues", INT)
    copy_on_read = Prop("driver/@copy_on_read", ON_OFF)
    source = Child("source", DiskSource)
    backing_store = Child("backingStore", BackingStore)
    mirror_job = Prop("mirror/@job")
    target = Prop("target/@dev")
    bus = Prop("target/@bus")
    tray = Prop("target/@tray")
    removable = Prop("target/@removable", ON_OFF)
    iotune = Child("iotune", IoTune)
    read_only = Prop("readonly", FLAG)
    shareable = Prop("shareable", FLAG)
    transient = Prop("transient", FLAG)
    serial = Prop("serial")
    wwn = Prop("wwn")
    vendor = Prop("vendor")
    product = Prop("product")
    logical_block_size = Prop("blockio/@logical_block_size", INT)
    physical_block_size = Prop("blockio/@physical_block_size", INT)

    @property
    def removable_medium(self) -> bool:
        """True for drives with removable media: CD and floppy."""
        return self.device in ("cdrom", "floppy")
