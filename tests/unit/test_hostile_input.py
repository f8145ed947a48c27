"""Whatever a host, a file or a user gives a parser."""

from hypothesis import strategies as st

from saltvirt import units
from saltvirt.design import caps
from saltvirt.placement import facts
from saltvirt.system import mounts
from saltvirt.xml.domain.domain import Domain
from tests import golden
from tests.strategies import TEXT, cut, parsed_or_refused, twisted

INVENTORY = {
    "cpus": 8, "memory_kib": 1 << 23, "types": ["kvm"], "bridges": ["br0"], "labels": {"rack": "a"},
    "stores": {"/": {"total_bytes": 9, "free_bytes": 5}}, "mounts": {"/": "/"},
    "guests": {"web1": {"state": "running", "vcpus": 1, "memory_kib": 4, "groups": ["web"]}},
}  # fmt: skip
MOUNT = r"36 35 98:0 /a\040b /mnt rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue"

test_it_is_parsed_or_refused_in_one_line = parsed_or_refused({
    "inventory": (twisted(INVENTORY), lambda data: facts.Inventory.from_answer(data, "hv1")),
    "domain": (cut(golden.read("domains/simple.xml")), Domain.fromstring),
    "capabilities": (cut(golden.read("caps/qemu.xml")), caps.parse),
    "mounts": (cut(MOUNT), lambda text: [*mounts.parse([text])]),
    "size": (TEXT | cut("10.5 GiB"), units.parse_bytes),
    "count": (TEXT | st.floats() | st.integers(), units.parse_count),
})  # fmt: skip
