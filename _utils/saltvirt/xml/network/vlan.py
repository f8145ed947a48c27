"""VLAN tags of an interface or a network."""

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.kinds import INT, YES_NO


class Tag(Element):
    """``<tag>``."""

    TAG = "tag"

    id = Prop("@id", INT)
    native_mode = Prop("@nativeMode")


class Vlan(Element):
    """``<vlan>``."""

    TAG = "vlan"

    trunk = Prop("@trunk", YES_NO)
    tags = Children("tag", Tag)
