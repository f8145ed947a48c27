"""Limits of a network interface or a network."""

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import INT


class Bandwidth(Element):
    """``<bandwidth>``: average and peak in KiB/s, burst in KiB, floor in KiB/s."""

    TAG = "bandwidth"

    inbound_average = Prop("inbound/@average", INT)
    inbound_peak = Prop("inbound/@peak", INT)
    inbound_burst = Prop("inbound/@burst", INT)
    inbound_floor = Prop("inbound/@floor", INT)
    outbound_average = Prop("outbound/@average", INT)
    outbound_peak = Prop("outbound/@peak", INT)
    outbound_burst = Prop("outbound/@burst", INT)
