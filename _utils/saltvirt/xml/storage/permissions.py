"""The permissions of a pool's folder or a volume's file."""

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import INT


class Permissions(Element):
    """``<permissions>``; the mode is octal text such as 0711."""

    TAG = "permissions"

    mode = Prop("mode")
    owner = Prop("owner", INT)
    group = Prop("group", INT)
    label = Prop("label")
