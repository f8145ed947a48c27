"""One of the guest's timers."""

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import INT, YES_NO


class Timer(Element):
    """``<timer>``."""

    TAG = "timer"

    name = Prop("@name")
    track = Prop("@track")
    tickpolicy = Prop("@tickpolicy")
    frequency = Prop("@frequency", INT)
    mode = Prop("@mode")
    present = Prop("@present", YES_NO)
    threshold = Prop("catchup/@threshold", INT)
    slew = Prop("catchup/@slew", INT)
    limit = Prop("catchup/@limit", INT)
