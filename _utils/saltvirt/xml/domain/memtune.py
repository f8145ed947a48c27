"""Limits for the host memory of the guest's process."""

from saltvirt.xml.base import Element, Prop
from saltvirt.xml.kinds import KIB


class MemTune(Element):
    """``<memtune>``; all in KiB."""

    TAG = "memtune"

    hard_limit_kib = Prop("hard_limit", KIB)
    soft_limit_kib = Prop("soft_limit", KIB)
    min_guarantee_kib = Prop("min_guarantee", KIB)
    swap_hard_limit_kib = Prop("swap_hard_limit", KIB)
