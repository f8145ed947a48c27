"""The guest's trusted platform module."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import YES_NO


class Tpm(Device):
    """``<tpm>``: emulated by swtpm, or a device of the host passed through."""

    TAG = "tpm"

    model = Prop("@model")
    backend = Prop("backend/@type")
    version = Prop("backend/@version")
    persistent_state = Prop("backend/@persistent_state", YES_NO)
    encryption_secret = Prop("backend/encryption/@secret")
    device_path = Prop("backend/device/@path")
