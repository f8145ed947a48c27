"""The clock of the guest."""

from saltvirt.xml.base import Children, Element, Prop
from saltvirt.xml.domain.timer import Timer


class Clock(Element):
    """``<clock>``."""

    TAG = "clock"

    offset = Prop("@offset")
    adjustment = Prop("@adjustment")
    basis = Prop("@basis")
    timezone = Prop("@timezone")
    start = Prop("@start")
    timers = Children("timer", Timer)
