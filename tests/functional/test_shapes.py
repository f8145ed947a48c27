"""The shapes that the master expects are those that hosts answer in, on libvirt's test driver."""

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt.fleet import shape
from tests.functional.test_init import host, image  # noqa: F401

ASKED = {
    "virt.vm_state": {}, "virt.full_info": {}, "virt.list_domains": {}, "virt.inventory": {},
    "virt.leftovers": {}, "virt.migrate_locations": {}, "virt.maintenance": {}, "virt.tls_info": {},
    "virt.guest_addresses": {"vm_": "test"}, "virt.list_snapshots": {"domain": "test"},
    "virt.snapshot": {"domain": "test", "name": "s1"}, "virt.migrate_unfinished": {},
    "virt.purge": {"vm_": "test", "test": True},
    "virt.power": {"name": "test", "verb": "pause", "when": ["running"], "last_seen": True},
}  # fmt: skip


@pytest.mark.parametrize("fun", ASKED)
def test_what_a_host_answers_fits(host, fun):  # noqa: F811
    asked = dict(ASKED[fun])
    shape.check(fun, asked, host.modules[fun](**asked))


def test_what_a_host_answers_of_a_guest_that_it_made_fits(host, image):  # noqa: F811
    disks = [{"name": "system", "size": 16}]
    shape.check("virt.init", {}, host.init("a", image=image, disks=disks))
    shape.check("virt.clone", {}, host.modules["virt.clone"]("a", "b"))
    shape.check("virt.rename", {}, host.modules["virt.rename"]("b", "c"))
