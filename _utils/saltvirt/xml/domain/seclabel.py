"""The confinement of the guest by SELinux, AppArmor or user ids."""

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import YES_NO


class SecLabel(Element):
    """``<seclabel>``."""

    TAG = "seclabel"

    type = Prop("@type")
    model = Prop("@model")
    relabel = Prop("@relabel", YES_NO)
    label = Prop("label")
    imagelabel = Prop("imagelabel")
