"""The virtual port of an interface on a switch such as Open vSwitch."""

from saltvirt.xml.base import Element, Prop

PARAMETERS = (
    "interfaceid",
    "profileid",
    "managerid",
    "typeid",
    "typeidversion",
    "instanceid",
)


class VirtualPort(Element):
    """``<virtualport>``: openvswitch, midonet, 802.1Qbg, 802.1Qbh."""

    TAG = "virtualport"

    type = Prop("@type")
    interfaceid = Prop("parameters/@interfaceid")
    profileid = Prop("parameters/@profileid")
    managerid = Prop("parameters/@managerid")
    typeid = Prop("parameters/@typeid")
    typeidversion = Prop("parameters/@typeidversion")
    instanceid = Prop("parameters/@instanceid")
