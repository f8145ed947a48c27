"""PCI Express ports for devices that are attached while the guest runs."""

import pytest

from saltvirt.design import caps, domain
from saltvirt.design.ports import MODEL, RESERVED, SPARE
from saltvirt.diff.changes import changes
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.spec import guest
from tests import golden
from tests.unit.design.test_changes import given

CAPS = caps.parse(golden.read("caps/qemu.xml"), golden.read("caps/qemu-kvm-domain.xml"))


def made(**more):
    return domain.build(guest.parse("web1", 1, 512, **more), CAPS, given())


def ports(built):
    return sum(item.model == MODEL for item in built.controllers)


def test_a_new_guest_has_places_for_what_comes_while_it_runs():
    built = made(machine="q35")
    assert ports(built) == RESERVED + 2 + SPARE, "a disk and an interface"
    assert [item.index for item in built.controllers if item.model == "pcie-root"] == [0]
    assert ports(made(machine="q35", pcie_ports=3)) == 3
    assert ports(made()) == 0, "i440fx has slots on its only bus"


def test_a_guest_that_is_there_gets_more_only_if_it_is_asked_for():
    built = made(machine="q35", pcie_ports=3)
    for asked, expected in ((None, 3), (2, 3), (5, 5)):
        more = {} if asked is None else {"pcie_ports": asked}
        spec = guest.parse("web1", update=True, disks=[{"name": "system"}], **more)
        wanted = domain.amend(spec, built, CAPS, given())
        assert ports(wanted) == expected
        assert len(changes(wanted, built)) == expected - 3
    with pytest.raises(Unsupported, match="has no PCI Express"):
        made(pcie_ports=3)
    with pytest.raises(InvalidInput, match="pcie_ports"):
        made(machine="q35", pcie_ports=33)
