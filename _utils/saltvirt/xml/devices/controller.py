"""A bus of the guest: PCI, SCSI, USB, SATA, virtio-serial."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import INT


class Controller(Device):
    """``<controller>``."""

    TAG = "controller"

    type = Prop("@type")
    index = Prop("@index", INT)
    model = Prop("@model")
    ports = Prop("@ports", INT)
    queues = Prop("driver/@queues", INT)
    iothread = Prop("driver/@iothread", INT)
