"""The socket between host and guest."""

from saltvirt.xml.base import Prop
from saltvirt.xml.device import Device
from saltvirt.xml.kinds import INT, YES_NO


class Vsock(Device):
    """``<vsock>``; ``cid``: the guest's address, which libvirt chooses with ``auto``."""

    TAG = "vsock"

    model = Prop("@model")
    auto = Prop("cid/@auto", YES_NO)
    cid = Prop("cid/@address", INT)
