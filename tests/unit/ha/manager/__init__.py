"""Tests of high availability on the master; its decisions are tested in tests/unit/ha/model."""

import copy

from saltvirt.placement.facts import StorageSpace
from tests.counted import HOST, Cloud

SHARED = StorageSpace(1 << 43, 1 << 43, 0, shared="nfs filer:/disks")
MEMBERS = {
    "hv000": {
        "address": "10.0.0.1",
        "fences": [{"agent": "fence_fake", "options": {"ip": "10.1.0.1"}}],
    },
    "hv001": "10.0.0.2",
    "hv002": "10.0.0.3",
}
GUEST = """<domain type='kvm'><name>{name}</name><memory>1048576</memory><vcpu>1</vcpu>
<os><type arch='x86_64'>hvm</type></os><devices>
<disk type='file' device='disk'><source file='{disk}'/><target dev='vda'/></disk>
</devices></domain>"""


def guest(**more):
    """A running guest, as an inventory tells of it."""
    return {"vcpus": 1, "memory_kib": 1 << 20, "state": "running", **more}


class HaCloud(Cloud):
    """Three hosts with a shared folder /disks. disks: guest to the path of its disk. told: the
    events that were sent. auto: (host, guest) to what set_autostart was last told. bases: target to
    the image below a disk that is to be made. kept_until: what its host's agent says, each time it
    is asked, before it keeps a guest no more."""

    def __init__(self, tmp_path, guests, dead=(), **ha):
        super().__init__(tmp_path, 3, guests, dead, ha={"members": copy.deepcopy(MEMBERS), **ha})
        self.opts["id"] = "salt_master"
        self.disks, self.backing, self.told, self.auto = {}, {}, [], {}
        self.bases, self.kept_until = {}, []
        self.pings = set(self.names) - set(dead)

    def fire_event(self, tag, data):
        self.told.append((tag, data))

    def virt_inventory(self, host, guest=None):
        return {
            **super().virt_inventory(host, guest),
            "stores": {"/disks": SHARED.to_answer(), "/": HOST["images_folder"]},
            "mounts": {"/disks": "/disks", "/": "/"},
        }

    def virt_init(self, host, name, cpu, mem, test=False, definition=False, **more):
        if test:
            asked = {"definition": self.virt_get_xml(host, name), "bases": dict(self.bases)}
            return {"name": name, "disks": [], "nics": [], **(asked if definition else {})}
        made = super().virt_init(host, name, cpu, mem, **more)
        if isinstance(made, dict):
            self.guests[host][name].pop("disk_bytes")
        return made

    def virt_get_xml(self, _host, vm_):
        return GUEST.format(name=vm_, disk=self.disks.get(vm_, f"/disks/{vm_}.qcow2"))

    def virt_get_disks(self, _host, vm_):
        disk = {"file": self.disks.get(vm_, f"/disks/{vm_}.qcow2")}
        if vm_ in self.backing:
            disk["backing file"] = {"file": self.backing[vm_]}
        return {"vda": disk}

    def virt_ha_kept(self, _host, name):
        return self.kept_until.pop() if self.kept_until else ""

    def virt_set_autostart(self, host, vm_, state):
        self.auto[host, vm_] = state
        return True

    def virt_migratable(self, _host, **_more):
        return {"migratable": True, "reasons": [], "pinned": False, "disks": {},
                "certificates": []}  # fmt: skip

    def test_ping(self, _host):
        return True
