"""Definitions that others made: what was not asked for stays, whatever it is."""

import pytest

from saltvirt.design import caps, domain
from saltvirt.design.changes import changes
from saltvirt.design.context import Given
from saltvirt.errors import InvalidInput
from saltvirt.spec import guest
from saltvirt.xml.domain import Domain
from tests import golden

CAPS = caps.parse(golden.read("caps/qemu.xml"), golden.read("caps/qemu-kvm-domain.xml"))
XML = """<domain type='kvm'><name>g1</name>{memory}
<vcpu>4</vcpu><os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
<cpu>{cpu}</cpu><devices>{devices}</devices></domain>"""
MEMORY = "<memory unit='KiB'>{0}</memory><currentMemory unit='KiB'>{0}</currentMemory>"
CELL = "<numa><cell id='0' cpus='0-3' memory='1048576' unit='KiB'/></numa>"
DIMM = "<memory model='{}'><target><size unit='KiB'>{}</size><node>0</node></target></memory>"
BOTH = (
    DIMM.format("dimm", 524288)
    + DIMM.format("virtio-mem", 2097152)
    + DIMM.format("sgx-epc", 65536).replace("model='sgx", "access='shared' model='sgx")
)
TOPOLOGY = "<topology sockets='1' dies='1' clusters='2' cores='2' threads='1'/>"


GIB = MEMORY.format(1048576)


def there(memory=GIB, cpu="", devices=""):
    return Domain.fromstring(XML.format(memory=memory, cpu=cpu, devices=devices))


def amended(actual, **arguments):
    return domain.amend(guest.parse("g1", update=True, **arguments), actual, CAPS, Given())


STRANGE = {
    "modules": there(MEMORY.format(3670016), CELL, BOTH),
    "another sum": there(MEMORY.format(2097152), CELL),
    "clusters": there(cpu=TOPOLOGY),
    "cells without id": there(cpu=CELL.replace("id='0' ", "")),
    "no memory": there(memory="<currentMemory unit='KiB'>1024</currentMemory>"),
    "a balloon that is none": there(
        MEMORY.format(1048576).replace("y unit='KiB'>1048576</c", "y unit='KiB'>1024</c"),
        devices="<memballoon model='none'/>",
    ),
    "more sockets": there(cpu="<topology sockets='5' cores='2' threads='1'/>"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_nothing_asked_is_nothing_changed(name):
    actual = STRANGE[name]
    for arguments in ({}, {"title": "a"}):
        wanted = amended(actual, **arguments)
        assert [c.path for c in changes(wanted, actual)] == [*arguments]


def test_memory_modules_count():
    actual = there(MEMORY.format(3670016), CELL, BOTH)
    assert changes(amended(actual, cpu=4), actual) == []
    larger = {0: {"cpus": "0-3", "memory": "2g"}}
    wanted = amended(actual, cpu={"numa": larger})
    assert wanted.memory_kib == 2097152 + 524288 + 2097152
    for mem in ("2g", "4.5g"):
        assert amended(actual, mem=mem, cpu={"numa": larger}).memory_kib == wanted.memory_kib
    with pytest.raises(InvalidInput, match="is not what cpu:numa makes"):
        amended(actual, mem="3g", cpu={"numa": larger})


def test_clusters_make_cpus_too():
    actual = there(cpu=TOPOLOGY)
    assert changes(amended(actual, cpu=4), actual) == []
    eight = amended(actual, cpu=8).cpu
    assert (eight.sockets, eight.clusters, eight.cores) == (2, 2, 2)
    five = amended(actual, cpu=5).cpu
    assert (five.sockets, five.clusters, five.cores) == (5, 1, 1)
    said = {"sockets": 1, "clusters": 2, "cores": 4, "threads": 1}
    assert amended(actual, cpu={"maximum": 8, "topology": said}).cpu.cores == 4
    with pytest.raises(InvalidInput, match="makes 8 CPUs"):
        amended(actual, cpu={"maximum": 4, "topology": said})


def test_a_cell_is_known_by_its_place_where_it_has_no_number():
    actual = there(cpu=CELL.replace("id='0' ", ""))
    wanted = amended(actual, cpu={"numa": {0: {"memory": "2g"}}})
    (cell,) = wanted.cpu.cells
    assert (cell.id, cell.memory_kib, cell.cpus) == (0, 2097152, "0-3")
    assert amended(there(memory=""), mem=64).memory_kib == 65536
