"""What the firmware tells the guest about its machine: SMBIOS tables and fw_cfg items."""

from saltvirt.xml.base import Children, Element, Prop

SMBIOS, FW_CFG = "smbios", "fwcfg"


class SysinfoEntry(Element):
    """``<entry>``."""

    TAG = "entry"

    name = Prop("@name")
    file = Prop("@file")
    text = Prop("")


class Baseboard(Element):
    """``<baseBoard>``; a machine may have several."""

    TAG = "baseBoard"

    entries = Children("entry", SysinfoEntry)


class Sysinfo(Element):
    """``<sysinfo>`` of type smbios or fwcfg."""

    TAG = "sysinfo"

    type = Prop("@type")
    entries = Children("entry", SysinfoEntry)
    bios = Children("bios/entry", SysinfoEntry)
    system = Children("system/entry", SysinfoEntry)
    baseboards = Children("baseBoard", Baseboard)
    chassis = Children("chassis/entry", SysinfoEntry)
    oem_strings = Children("oemStrings/entry", SysinfoEntry)
