"""A hypervisor that has turned bad: its answers are proven, and wrong at any place.

Each verb of the runner is called in a cloud of two hosts that answer as real ones do; then again
for each answer of hv1 that it read, with one place of it wrong. The verb says so in one line or
leaves it out: no traceback, nothing for the terminal but text, nothing done to what the other host
has, no key lost, no file made where none belongs.
"""

import cProfile
import importlib.util
import inspect
import json
import os
import re
import time
import uuid
from pathlib import Path
from types import FunctionType, SimpleNamespace

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

import salt.config
import salt.payload
import salt.utils.event

from saltvirt.answers import reach
from saltvirt.backup.manager import overdue
from saltvirt.fleet import answer, client, target
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import fingerprint
from saltvirt.ha.manager import desired_state
from saltvirt.ha.model.view import GuestConfig
from saltvirt.operations.cluster import unique
from saltvirt.operations.create import deploy, wait
from saltvirt.operations.journal import evacuated, lock
from saltvirt.operations.move import migrate
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.system import file_lock
from tests.clock import Clock
from tests.driver import only_test
from tests.functional import asking, hostile
from tests.functional.conftest import REPOSITORY, load
from tests.functional.fleet.test_keys import pairs  # noqa: F401

SLOW = bool(os.environ.get("SLOW"))
# of each verb's cases, which are hundreds of thousands
FEW = int(os.environ.get("HOSTILE_CASES") or (1500 if SLOW else 12))
SEED = os.environ.get("HOSTILE_SEED", "1")
ASKS = {
    "virt.vm_state", "virt.full_info", "virt.inventory", "virt.leftovers", "virt.migrate_locations",
    "virt.guest_addresses", "virt.list_snapshots", "virt.guest_details", "virt.migrate_unfinished",
    "virt.storage_users", "virt.migratable", "virt.tls_info", "virt.names_on_disk", "virt.versions",
    "virt.get_xml", "virt.get_disks", "test.ping", "saltutil.find_job",
    "virt.networks", "virt.pool_info", "virt.images", "virt.addresses", "virt.usage",
    "virt.volumes",
}  # fmt: skip
BACKUP = "000001-20261123T155220Z-00000001"
CERTIFICATE = {"file": "/c", "valid_until": "2027-01-01 00:00:00", "problem": None}
GUESTS = {"hv1": {"web1": "running", "db1": "shutdown"}, "hv2": {"web2": "running"}}


def recorded():
    """What a real host answers, on libvirt's test driver."""
    import libvirt

    conn = libvirt.open("test:///default")
    only_test(conn)
    modules = load("test:///default", labels={"rack": "a"})
    guest = {"name": "n", "cpu": 1, "mem": 64, "hypervisor": "test"}
    asked = {
        "virt.full_info": {}, "virt.inventory": {"guest": guest}, "virt.leftovers": {},
        "virt.migrate_locations": {}, "virt.guest_addresses": {"vm_": "test"},
        "virt.guest_details": {"vm_": "test"}, "virt.tls_info": {}, "virt.versions": {},
        "virt.networks": {}, "virt.pool_info": {}, "virt.images": {},
        "virt.addresses": {"vm_": "test"}, "virt.usage": {}, "virt.volumes": {},
    }  # fmt: skip
    found = {
        fun: json.loads(json.dumps(asking.answer(modules, fun, **kw))) for fun, kw in asked.items()
    }
    modules["virt.snapshot"](domain="test", name="s1")
    modules["virt.snapshot"](domain="test", name="s2")
    found["virt.list_snapshots"] = modules["virt.list_snapshots"](domain="test")
    conn.lookupByName("test").snapshotLookupByName("s2").delete()
    conn.lookupByName("test").snapshotLookupByName("s1").delete()
    conn.close()
    return found


DOOR = own_pair.generate(reach.CERTIFICATE_NAME, certs.SERVER, 1)


class Host:
    """A hypervisor as its answers show it."""

    def __init__(self, name, real, broken):
        self.name, self.real, self.broken = name, real, broken
        self.guests = dict(GUESTS[name])
        self.mark = {"reason": "disks", "guests": ["web2"]} if name == "hv1" else None

    def _each(self, whole):
        return dict.fromkeys(self.guests, whole["test"])

    def answer(self, fun, vm_=None, name=None, domain=None, test=False, target=None, **more):
        what = getattr(self, fun.partition(".")[2], None)
        if what:
            return what(vm_=vm_, name=name, test=test, target=target, **more)
        if fun in ("virt.start", "virt.resume", "virt.reset"):
            self.guests[name or vm_] = "running"
        elif fun in ("virt.list_snapshots", "virt.guest_details", "virt.guest_addresses"):
            return {name or domain or vm_: self.real[fun]["test"]}
        elif fun == "virt.snapshot":
            return {"name": name or "s3"}
        elif fun in ("virt.networks", "virt.pool_info", "virt.images", "virt.addresses",
                     "virt.usage", "virt.volumes"):  # fmt: skip
            return self.real[fun]
        return True

    def power(self, name=None, verb=None, states=(), last_seen=False, **_more):
        before = self.guests.get(name)
        if before not in states or (last_seen and before == "shutdown"):
            return {"before": before, "after": None}
        after = {"shutdown": "shutdown", "stop": "shutdown", "pause": "paused"}
        self.guests[name] = after.get(verb, "running")
        return {"before": before, "after": self.guests[name]}

    def update(self, test=False, **_more):
        changes = [{"path": "vcpu:maximum", "old": 1, "new": 2, "live": False}]
        return {"changes": changes, "pending": ["vCPUs (1 now, then 2)"]}

    def resize_disk(self, size, **_more):
        return {"before": 8, "after": size}

    def vm_state(self, vm_=None, **_more):
        return {k: v for k, v in self.guests.items() if vm_ in (None, k)}

    def full_info(self, **_more):
        real = self.real["virt.full_info"]
        return {**real, "vm_info": self._each(real["vm_info"])}

    def versions(self, **_more):
        return self.real["virt.versions"]

    def inventory(self, guest=None, **_more):
        real = self.real["virt.inventory"]
        guests = self._each(real["guests"])
        found = {
            name: {**about, "memory_kib": 2**20, "networks": [], "deployment": "shop",
                   "uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
                   "state": self.guests[name], "disks": [{"size_bytes": 9, "path": f"/i/{name}"}]}
            for name, about in guests.items()
        }  # fmt: skip
        whole = {
            **real, "guests": found, "memory_kib": 2**26, "types": ["test", "kvm", "qemu"],
            "bridges": ["br0"], "mounts": {"/": "/", "/i": "/", "/n": "/n"},
            "stores": {"/": {"total_bytes": 2**40, "free_bytes": 2**39, "promised_bytes": 0},
                       "/n": {"total_bytes": 9, "free_bytes": 9, "shared": "nfs filer:/n"}},
            "arriving": {"new9": {"memory_kib": 1, "vcpus": 1, "page_kib": None}},
            "hugepages": {"2048": 4096},
            "images_folder": {**real["images_folder"], "free_bytes": 2**39},
        }  # fmt: skip
        return whole if guest else {k: v for k, v in whole.items() if k != "guest"}

    def leftovers(self, **_more):
        found = {"guests": dict(self.guests), "unfinished": [], "migrations": {}, "purgeable": []}
        if self.broken and self.name == "hv1":
            found["unfinished"] = ["db1"]
            found["migrations"] = {"web1": {"target": "hv2", "at_work": False}}
            found["purgeable"] = ["old1@hv2"]
            found["target_leftovers"] = ["web1"]
        return found

    def migrate_locations(self, **_more):
        here = {
            "host": self.name,
            "file": "/c",
            "valid_until": "2027-01-01 00:00:00",
            "problem": None,
        }
        unfinished = ["web1"] if self.broken and self.name == "hv1" else []
        target_leftovers = ["web1"] if self.broken and self.name == "hv1" else []
        real = self.real["virt.migrate_locations"]
        more = {
            "guests": dict(self.guests),
            "certificates": {"client": here},
            "address": "10.0.0.1",
            "uuids": {},
            "maintenance": self.mark["reason"] if self.mark else None,
        }
        return {**real, **more, "unfinished": unfinished, "target_leftovers": target_leftovers}

    def migrate_clean(self, vm_, test=False, **_more):
        place = {"path": "/i/s"}
        if test:
            return {"delete": ["/i/a"], "keep": {}, "shared": {"/i/s": place}}
        return {"deleted": ["/i/a"], "retained": {}}

    def get_xml(self, **_more):
        disk = "<disk type='file'><source file='/n/a'/></disk>"
        return f"<domain><os/><devices>{disk}</devices></domain>"

    def get_disks(self, **_more):
        return {"vda": {"file": "/n/a", "backing file": {"file": "/n/base"}}}

    def ha_install(self, **_more):
        return {"changes": {"/usr/lib/salt-virt/ha-agent.pyz": "new"}, "comment": "installed"}

    def ha_settings(self, **_more):
        return {"changes": {"/etc/salt-virt/ha.json": "new"}, "comment": "written"}

    def migrate_unfinished(self, **_more):
        return {"web1": {"target": "hv2", "at_work": False}} if self.broken else {}

    def migratable(self, **_more):
        here = {
            "host": self.name,
            "file": "/c",
            "valid_until": "2027-01-01 00:00:00",
            "problem": None,
        }
        return {"migratable": True, "reasons": [], "pinned": False, "disks": {"vda": "copied"},
                "certificates": [here]}  # fmt: skip

    def migrate(self, vm_, target, **_more):
        self.cloud.hosts_[target].guests[vm_] = self.guests.pop(vm_)
        return {"name": vm_, "outcome": "moved", "source": self.name, "target": target,
                "live": True, "retained": {"/i/x": "not its own"}, "transport": "TLS",
                "time_ms": 900.0, "downtime_ms": 9, "memory_bytes": 1, "disk_bytes": 2,
                "disks": {"vda": "copy"}, "deleted": ["/i/a"]}  # fmt: skip

    def migrate_recover(self, vm_, **_more):
        return {
            "name": vm_,
            "outcome": "undone",
            "deleted": ["/i/a"],
            "retained": {},
            "leftovers": {},
        }

    def maintenance(self, reason=None, guests=None, off=False, **_more):
        if reason:
            self.mark = {"reason": reason, "guests": guests}
        elif off:
            self.mark = None
        return self.mark

    def init(self, name, **_more):
        self.guests[name] = "shutdown"
        disks = [{"target": "vda", "path": f"/i/{name}.qcow2", "format": "qcow2", "size_bytes": 8}]
        nics = [{"mac": "52:54:00:00:00:01", "type": "bridge", "source": "br0"}]
        about = {"name": name, "host": self.name, "uuid": "u", "state": "shutdown"}
        shown = {"nics": nics, "graphics": {"type": "vnc", "port": "5900"}}
        return {**about, **shown, "disks": disks, "pub_key": None}

    def clone(self, vm_, name, test=False, **_more):
        if test:
            return {"disks": ["/i/b"]}
        return self.init(name)

    def rename(self, vm_, name, test=False, **_more):
        if test:
            return {"disks": {"/i/a": "/i/b"}}
        self.guests[name] = self.guests.pop(vm_)
        return {"name": name, "host": self.name, "uuid": "u", "state": "shutdown",
                "pub_key": None, "disks": ["/i/b"]}  # fmt: skip

    def purge(self, vm_, test=False, **_more):
        if test:
            place = {"host": self.name, "store": "nfs:/x", "path": "/i/s"}
            return {"delete": ["/i/a"], "keep": {"/i/m": "shared", "/i/s": "shared"},
                    "shared": {"/i/s": place}, "unsure": ["/i/s"]}  # fmt: skip
        self.guests.pop(vm_, None)
        return True

    def remove_volume(self, **_more):
        shared = {"/i/v": {"path": "/i/v"}}
        return {"path": "/i/v", "allocation": 1024, "keep": None, "shared": shared}

    def revert_snapshot(self, test=False, **_more):
        place = {"path": "/i/s"}
        told = {"reverted": "s1", "deleted": ["s2"]}
        return {**told, "shared": {"/i/s": place}, "guest_disks": {"/i/s": place}} if test else told

    def delete_snapshots(self, test=False, **_more):
        return {**self.revert_snapshot(test=test), "deleted": {"s1": True, "s2": True}}

    def display(self, **_more):
        one = {"type": "vnc", "listen": "127.0.0.1", "port": 5900, "socket": None,
               "connect": "vncviewer localhost:5900", "tunnel": "ssh"}  # fmt: skip
        return {"uuid": "u", "host": "hv1", "state": "running", "displays": [one]}

    def screen(self, **_more):
        return {"uuid": "u", "png": "iVBORw0KGgo="}

    def reach(self, kind, **_more):
        return {"uuid": "u", "kind": kind, "port": 10840, "authority": DOOR.authority,
                "type": "vnc"}  # fmt: skip

    def backup_look(self, **_more):
        disk = {"target": "vda", "size_bytes": 8, "source": "file /i/a", "format": "qcow2",
                "bitmaps": {"salt-virt.x": "good"}}  # fmt: skip
        return {"uuid": "u", "active": True, "disks": [disk], "checkpoints": ["salt-virt.x"],
                "skipped": {"sda": "a CD drive"}}  # fmt: skip

    def backup_plan(self, **_more):
        disks = [{"target": "vda", "parent": None, "since": None, "reason": "the first"}]
        return {"backup_id": BACKUP, "disks": disks, "needed": ["salt-virt.x"], "guest": "web1",
                "host": "hv1", "reader": "PEM"}  # fmt: skip

    def backup_reader(self, **_more):
        return {"authority": "PEM"}

    def backup_begin(self, **_more):
        disk = {"target": "vda", "size_bytes": 8, "source": "file /i/a", "export": "vda",
                "parent": None, "reason": "the first", "checkpoint": "c"}  # fmt: skip
        return {"uuid": "u", "host": "hv1", "port": 10809, "consistency": "crash",
                "definition": "<domain/>", "disks": [disk], "note": "no agent",
                "authority": "PEM"}  # fmt: skip

    def backup_pull(self, **_more):
        return {"backup_id": BACKUP, "stored_bytes": 9, "moved_bytes": 8, "checkpoints": ["c"]}

    def backup_end(self, **_more):
        return {"reason": None, "leftovers": []}

    def backup_list(self, **_more):
        return [{"backup_id": BACKUP, "taken_at": "2026-11-23T15:52:20Z", "host": "hv1",
                 "guest": "web1",
                 "uuid": "u", "consistency": "crash", "disks": {"vda": "full"},
                 "stored_bytes": 9, "problem": None}]  # fmt: skip

    def backup_show(self, **_more):
        disks = [{"target": "vda", "size_bytes": 8}]
        return {"backup_id": BACKUP, "guest": "web1", "host": "hv1", "port": 10809,
                "definition": "<domain/>", "disks": disks, "authority": "PEM"}  # fmt: skip

    def backup_hide(self, **_more):
        return True

    def backup_restore(self, name, **_more):
        return self.init(name)

    def backup_over(self, **_more):
        return {"uuid": "u", "active": False, "reasons": [], "unconfirmed": None}

    def backup_disk(self, **_more):
        return {"path": "/srv/salt-images/web1_vda.qcow2", "size_bytes": 8}

    def backup_confirm(self, **_more):
        return {"delete": ["/srv/salt-images/web1_vda.qcow2"], "keep": {}}

    def backup_undo(self, **_more):
        return {"leftovers": []}

    def backup_stands(self, **_more):
        return [{"uuid": "u", "backup_id": BACKUP, "pin": {"guest": "web1", "host": "hv1"}}]

    def backup_standing(self, **_more):
        return {"state": "disconnected", "backup_id": BACKUP, "percent": 7, "paused": True,
                "reason": "it is gone",
                "disks": {"vda": 7}}  # fmt: skip

    def backup_again(self, **_more):
        return {**self.backup_standing(), "state": "pulling", "reason": None, "paused": False}

    def backup_let_go(self, **_more):
        return True

    def backup_wish(self, **_more):
        return "hours=24.0 to=vault"

    def backup_prune(self, **_more):
        backups = [{"backup_id": "000001-20261123T155220Z-00000001", "retained": False,
                    "reason": "no rule"}]  # fmt: skip
        about = {"uuid": "u", "guest": "web1", "backups": backups, "error": None}
        return {"guests": [about], "images": ["x.raw"]}

    def backup_verify(self, **_more):
        found = {"verified_at": "2026-11-23T15:52:20Z", "disks": ["vda"], "broken_disks": {}}
        about = {"uuid": "u", "backup_id": "000001-20261123T155220Z-00000001", "guest": "web1"}
        return {"backups": [{**about, "verification": found, "error": None, "problem": None}]}

    def backup_ls(self, **_more):
        file = {"name": "fstab", "kind": "file", "size_bytes": 8, "mode": "0644", "changed_s": 1}
        about = {"backup_id": "000001-20261123T155220Z-00000001", "guest": "web1", "omitted": 0}
        systems = {"filesystems": {"/dev/sda1": "ext4"}, "missing": {}}
        return {**about, **systems, "files": [{**file, "link": None}]}

    def backup_get(self, **_more):
        about = {"backup_id": "000001-20261123T155220Z-00000001", "guest": "web1", "kind": "file"}
        return {**about, "size_bytes": 8, "path": "/var/lib/salt-virt/backup-files/web1-1-fstab"}

    def storage_users(self, places=None, **_more):
        return dict.fromkeys(places or {})

    def tls_info(self, **_more):
        cert = {
            "subject": f"CN={self.name}", "issuer": "CN=ca", "sha256": "aa", "serial": "1",
            "not_after": "2027-01-01T00:00:00", "names": [self.name],
        }  # fmt: skip
        return {"certs": {"server": cert}, "trusted": ["CN=ca"], "daemon": "serves",
                "problems": ["nothing"]}  # fmt: skip

    def tls_update(self, **_more):
        return {"changes": {"server": "new"}, "info": self.tls_info()}


class Cloud(Fleet):
    """The real Fleet, whose jobs are calls of hosts of this process. What comes from hv1 goes
    through ``twist``, which is given the function and the data."""

    def __init__(self, opts, real, broken=False, twist=None, says=None):
        super().__init__(opts, now=time.monotonic)
        self.hosts_ = {name: Host(name, real, broken) for name in GUESTS}
        for host in self.hosts_.values():
            host.cloud = self
        self.twist, self.says = twist or (lambda _fun, data: data), says
        self.done, self.read, self.told = [], {}, []

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def _hypervisors(self):
        return ["hv1", "hv2"]

    def keys(self):
        """The minions whose keys the master has."""
        return {path.name for path in Path(self.opts["pki_dir"], "minions").iterdir()}

    def fire_event(self, tag, data):
        self.told.append((tag, data))

    def ask(self, hosts, fun, kwarg=None, watch=None, **_options):
        for host in hosts:
            if fun == "test.ping" and host not in self.hosts_:
                continue  # a guest's minion, before its key goes: it does not answer
            assert host in self.hosts_
            kwarg = kwarg or {}
            if fun not in ASKS and not kwarg.get("test"):
                self.done.append((host, fun, kwarg))
            data = self.hosts_[host].answer(fun, **kwarg)
            if host == "hv1":
                self.read.setdefault(fun, data)
                data = self.twist(fun, data)
                for said in self.says or ():
                    if watch:
                        job = SimpleNamespace(watcher=watch[1])
                        client._Job._watched(job, f"{watch[0]}x", said)
            yield answer.from_return(host, {"return": data})


# verb: (its arguments, the guests that they are about, whether hv1 has broken-off operations)
VERBS = {
    "query": ({}, ()), "list": ({}, ()), "host_info": ({}, ()), "versions": ({}, ()),
    "next_host": ({}, ()), "networks": ({}, ()), "pools": ({}, ()), "images": ({}, ()),
    "volumes": ({}, ()),
    "volume_delete": ({"pool": "default-pool", "volume": "v", "host": "hv1"}, ()),
    "top": ({}, ()), "log": ({"name": "web1"}, ()),
    "addresses": ({"name": "web1"}, ()), "maintenance": ({"host": "hv1", "state": "off"}, ()),
    "vm_info": ({"name": "web1"}, ()), "locate": ({"name": "web1"}, ()),
    "explain": ({"name": "new1", "cpu": 1, "mem": 64, "hypervisor": "test"}, ()),
    "capacity": ({"cpu": 1, "mem": 64, "hypervisor": "test", "disk": "default"}, ()),
    "init": (
        {"name": "new1", "cpu": 1, "mem": 64, "image": None, "hypervisor": "test", "seed": False},
        ("new1",),
    ),
    "start": ({"name": "db1"}, ("db1",)), "shutdown": ({"name": "web1", "timeout": 0}, ("web1",)),
    "force_off": ({"name": "web1"}, ("web1",)), "pause": ({"name": "web1"}, ("web1",)),
    "reset": ({"name": "web1"}, ("web1",)), "resume": ({"name": "web1"}, ("web1",)),
    "reboot": ({"name": "web1", "timeout": 1}, ("web1",)),
    "update": ({"name": "web1", "cpu": 2}, ("web1",)),
    "resize": ({"name": "web1", "disk": "vda", "size": 9}, ("web1",)),
    "autostart": ({"name": "web1"}, ("web1",)),
    "attach": ({"name": "web1", "disk": "data", "size": 9}, ("web1",)),
    "detach": ({"name": "web1", "disk": "data"}, ("web1",)),
    "authorize": ({"name": "new1", "host": "hv1"}, ()), "started": ({"host": "hv1"}, ()),
    "snapshots": ({"name": "web1"}, ()),
    "snapshot": ({"name": "web1", "snapshot": "s3"}, ("web1",)),
    "revert": ({"name": "web1"}, ("web1",)),
    "delete_snapshots": ({"name": "web1", "all": True}, ("web1",)),
    "purge": ({"name": "db1"}, ("db1",)),
    "purge_test": ({"name": "db1", "test": True}, ()),
    "rename": ({"name": "db1", "new": "db9"}, ("db1", "db9")),
    "clone": ({"name": "db1", "new": "db9", "start": True}, ("db1", "db9")),
    "seed_eject": ({"name": "web1"}, ("web1",)),
    "migrate": ({"name": "web1"}, ("web1",)),
    "migrate_to": ({"name": "web2", "target": "hv1"}, ("web2",)),
    "migrate_test": ({"name": "web1", "target": "hv2", "test": True}, ()),
    "migrate_broken": ({"name": "web1", "target": "hv2"}, ("web1",)),
    "migratable": ({"name": "web1", "target": "hv2"}, ()),
    "migrate_abort_broken": ({"name": "web1"}, ("web1",)),
    "migrate_recover_broken": ({"name": "web1"}, ("web1",)),
    "migrate_unfinished_broken": ({}, ()),
    "evacuate": ({"host": "hv1"}, ("web1", "db1")),
    "restore": ({"host": "hv1"}, ("web2",)),
    "rebalance": ({"apply": True, "threshold": 0}, ("web1", "db1", "web2")),
    "repair": ({"apply": True}, ()), "repair_broken": ({"apply": True}, ("db1",)),
    # web1: where its host hides it, it is made elsewhere
    "deployed": (
        {"guests": {"web1": {"mem": 64, "seed": False, "hypervisor": "test", "backup": True},
                    "new1": {"mem": 64, "seed": False, "hypervisor": "test", "nic": None}},
         "deployment": "shop", "remove": True},
        ("new1", "db1", "web2", "web1"),
    ),
    "deployments": ({}, ()), "deployments_one": ({"name": "shop"}, ()),
    "ha_enable": ({"name": "web1"}, ("web1",)), "ha_disable": ({"name": "db1"}, ("db1",)),
    "ha_ignore": ({"name": "db1"}, ("db1",)),
    "ha_rule": ({"name": "r", "anti_affinity": "strict"}, ()),
    "ha_move": ({"name": "db1", "host": "hv2"}, ("db1",)), "ha_setup": ({}, ()),
    "ha_arm": ({}, ()), "ha_disarm": ({}, ()), "ha_status": ({}, ()),
    "ha_confirm_off": ({"host": "hv2"}, ()), "ha_simulate": ({"lose": "hv1"}, ()),
    "fence": ({"host": "hv1", "test": True}, ()),
    "backup": ({"name": "web1"}, ("web1",)), "backup_test": ({"name": "web1", "test": True}, ()),
    "backup_restore": ({"name": "web1", "new": "new1"}, ("web1", "new1")),
    "backup_restore_over": ({"name": "web1", "in_place": True}, ("web1",)),
    "backup_restore_disk": ({"name": "web1", "disk": "vda"}, ("web1",)),
    "backup_confirm": ({"name": "web1"}, ("web1",)), "backup_undo": ({"name": "web1"}, ("web1",)),
    "backup_restore_instant": ({"name": "web1", "new": "new1", "instant": True}, ("new1",)),
    "backup_instant": ({"name": "web1", "timeout": 0}, ("web1",)),
    "backup_instant_all": ({}, ("web1",)), "backup_instant_test": ({"test": True}, ()),
    "backups": ({}, ()), "backup_verify": ({}, ()),
    "backup_due": ({"guests": "web1"}, ("web1",)),
    "backup_prune": ({}, ()), "backup_prune_test": ({"name": "web1", "test": True}, ()),
    "backup_ls": ({"name": "web1"}, ()), "backup_get": ({"name": "web1", "path": "/a"}, ()),
    "backup_get_test": ({"name": "web1", "path": "/a", "test": True}, ()),
    "certs": ({}, ()), "rotate_ca": ({}, ()), "revoke": ({"host": "hv1"}, ()),
    "metrics": ({}, ()), "help": ({}, ()),
    "display": ({"name": "web1"}, ()), "screenshot": ({"name": "web1"}, ()),
    "ticket": ({"name": "web1", "digest": "a" * 64}, ()), "watch": ({"digest": "a" * 64}, ()),
    "console": ({"name": "web1"}, ()), "exec": ({"name": "web1", "cmd": "uptime"}, ()),
    "put": ({"name": "web1", "local": "/etc/hostname", "remote": "/tmp/a"}, ()),
    "get": ({"name": "web1", "remote": "/etc/hostname", "local": "/tmp/no/folder"}, ()),
    "set_owner": ({"name": "web1", "owner": "anna"}, ()), "owners": ({}, ()),
    "label": ({"name": "web1", "labels": ["web"]}, ()),
}  # fmt: skip
RUNNERS = {
    "virt": ("next_host", "explain", "capacity", "init", "repair", "help"),
    "virt_backup": ("backup", "backup_due", "backups", "backup_restore", "backup_confirm",
                    "backup_undo", "backup_instant", "backup_ls", "backup_get", "backup_prune",
                    "backup_verify"),
    "virt_change": ("update", "resize", "reboot", "autostart", "attach", "detach",
                    "volume_delete"),
    "virt_deploy": ("deployed", "deployments", "started"),
    "virt_ha": ("ha_enable", "ha_disable", "ha_ignore", "ha_move", "ha_setup", "ha_rule",
                "ha_arm", "ha_disarm", "ha_status", "ha_confirm_off", "ha_simulate", "fence"),
    "virt_console": ("console", "exec", "put", "get", "display", "screenshot", "ticket", "watch"),
    "virt_inspect": ("query", "list", "host_info", "versions", "vm_info", "locate",
                     "addresses", "networks", "pools", "volumes", "images", "maintenance", "top",
                     "log"),
    "virt_metrics": ("metrics",),
    "virt_migrate": ("migrate", "evacuate", "restore", "rebalance", "migratable", "migrate_abort",
                     "migrate_recover", "migrate_unfinished"),
    "virt_pki": ("certs", "rotate_ca", "revoke"),
}  # fmt: skip


def plain(verb):
    """The name of its function."""
    for suffix in ("_broken", "_test", "_to", "_over", "_disk", "_all", "_one"):
        verb = verb.removesuffix(suffix)
    return verb.replace("restore_instant", "restore")


@pytest.fixture(scope="module")
def real():
    return recorded()


@pytest.fixture(scope="module")
def modules():
    """The files of the runner, by name."""
    found = {}
    for path in sorted((REPOSITORY / "_runners").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"runner_{path.stem}", path)
        found[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found[path.stem])
    return found


@pytest.fixture(scope="module")
def draw():
    """The outputter."""
    spec = importlib.util.spec_from_file_location("drawn", REPOSITORY / "_output/virt_query.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.output


class Events:
    def __init__(self, *_a, **_k):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        pass

    def __getattr__(self, _name):
        return lambda *_a, **_k: None


@pytest.fixture
def call(tmp_path, monkeypatch, modules, real, pairs):  # noqa: F811
    """call(verb, twist) → (Cloud, what the runner returned), with the master as new each time."""
    monkeypatch.setattr(salt.utils.event, "get_event", Events)
    for waiting in (file_lock, lock, unique, wait):
        monkeypatch.setattr(waiting, "time", Clock(time.time()))
    monkeypatch.setattr(target, "reported", lambda _opts, name: name == "web1")
    base = salt.config.master_config(None)
    count = iter(range(10**6))

    def call(verb, /, twist=None, says=None, **changed):
        root = tmp_path / str(next(count))
        for folder in ("cache", "sock", "pki/minions", "pki/minions_pre", "pki/minions_rejected",
                       "pki/minions_denied", "pki/virt-accepted"):  # fmt: skip
            (root / folder).mkdir(parents=True)
        for name in ("hv1", "hv2", "web1", "db1", "web2"):
            (root / "pki/minions" / name).write_text(pairs[0])
        mark = fingerprint(pairs[0])
        for host, guests in GUESTS.items():
            for name in guests:
                (root / "pki/virt-accepted" / name).write_text(f"{host}\n{mark}")
        opts = {
            **base, "pki_dir": str(root / "pki"), "cachedir": str(root / "cache"), "user": "root",
            "sock_dir": str(root / "sock"), "conf_file": str(root / "master"),
            "virt": {"hosts": "hv*", "queue_timeout": 1,
                     "backup": {"targets": {"vault": {"host": "hv1", "folder": "/b"}}},
                     "placement": {"reserved_memory_kib": 0, "reserved_disk_bytes": 0},
                     "ha": {"members": {"hv2": "10.9.0.2", "hv1": {
                         "address": "10.9.0.1", "fences": [{"agent": "fence_none"}]}}}},
        }  # fmt: skip
        function = plain(verb)
        if function.startswith("ha_"):
            known = desired_state.DesiredState(guests={"db1": GuestConfig("db1", "hv1")})
            desired_state.DesiredStateStore(opts).change("the test", lambda _old: known)
        cloud = Cloud(opts, real, verb.endswith("_broken"), twist, says)
        if function == "restore":
            evacuated.store(opts, "hv1", {"web2": "web2"})
        else:
            cloud.hosts_["hv1"].mark = None
        stem = next((s for s, names in RUNNERS.items() if function in names), "virt_guest")
        module = modules[stem]
        monkeypatch.setattr(module, "Fleet", lambda _opts: cloud, raising=False)
        for library in (deploy, overdue, migrate):
            monkeypatch.setattr(library, "Fleet", lambda _opts, **_more: cloud)
        monkeypatch.setattr(module, "__opts__", opts, raising=False)
        cloud.shown = []
        channel = SimpleNamespace(fire_event=lambda data, _tag: cloud.shown.append(data))
        function_ = FunctionType((lambda: None).__code__, {"__jid_event__": channel})
        functions = {"virt.x": function_, "virt.help": function_,
                     "state.orchestrate": lambda **_kwargs: {}}  # fmt: skip
        monkeypatch.setattr(module, "__salt__", functions, raising=False)
        cloud.parameters = inspect.signature(getattr(module, function)).parameters
        return cloud, getattr(module, function)(**{**VERBS[verb][0], **changed})

    return call


# a wrong answer makes no more work than so many right ones
MOST = 50


def counted(work):
    """(what it returns, how many calls of functions it took)."""
    profile = cProfile.Profile()
    found = profile.runcall(work)
    return found, sum(one.callcount for one in profile.getstats())


UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def wrong(verb, cloud, found, good, draw):
    """What is wrong with what a verb did and said: sentences. good: the Cloud in which nothing
    was wrong."""
    yield from wrong_words(cloud, found, draw)
    about, may = set(VERBS[verb][1]), {(h, f, str(k)) for h, f, k in good.done}
    for host, fun, kwarg in cloud.done:
        named = {kwarg.get("vm_"), kwarg.get("name"), kwarg.get("domain")} - {None} - about
        if host != "hv1" and named and (host, fun, str(kwarg)) not in may:
            yield f"{fun} of {named} on {host}"
    lost = good.keys() - cloud.keys() - about
    if lost:
        yield f"keys lost: {lost}"


def wrong_words(cloud, found, draw):
    """What is wrong with what a verb said."""
    seen = [*hostile.texts(found), *hostile.texts(cloud.told)]
    for one in found["data"].values():
        comment = one.get("comment") if isinstance(one, dict) else None
        if "internal error" in str(comment):
            yield comment[:300]
        if "\n" in str(comment):
            yield f"more than one line: {comment[:200]!r}"
    try:
        json.dumps(found)
        salt.payload.dumps(found)
        seen += draw(found).split("\n")
    except Exception as exc:
        yield f"it cannot be sent or drawn: {exc!r}"[:200]
    for said in cloud.shown:
        text = draw({"event": said, "suffix": "progress"})
        seen.append(text.replace("\n", "\0"))
    for text in seen:
        if UNSEEN.search(text):
            yield f"control characters: {text[:80]!r}"


# the hosts have no certificates; no engine of high availability runs; hosts answer, no fence does
# there is no authority, no engine of either kind, nobody at the port that was told of, no terminal
REFUSED = ("certs", "rotate_ca", "revoke", "ha_arm", "ha_disarm", "ha_status", "ha_confirm_off",
           "ha_move", "fence", "watch", "console", "exec", "put", "get")  # fmt: skip


def test_no_verb_is_left_out(modules):
    found = {name: one for module in modules.values() for name, one in vars(module).items()}
    ours = {name for name, one in found.items() if "CLI Example" in (inspect.getdoc(one) or "")}
    assert ours - {plain(verb) for verb in VERBS} == set()


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)


@pytest.mark.parametrize("verb", VERBS)
def test_the_verb_itself_works(call, draw, verb, terminal):
    cloud, found = call(verb)
    assert not list(wrong(verb, cloud, found, cloud, draw)), found
    assert verb in REFUSED or not found["data"].get("retcode"), found
    text = draw(found["data"])
    assert not list(unreadable(text)), text
    for endless in ENDLESS:
        text = draw(with_leaves(found["data"], endless))
        bad = [why for why in unreadable(text) if not why.startswith(("twice", "a size"))]
        assert not bad, (bad[:3], text[:2000])


# values of texts and of numbers that no line has room for
ENDLESS = (("the disk of the guest " * 20, 2**62), ("x" * 300, -1.5e300), ("a,b c" * 2000, 0))
# a value of Python, unless it is the argument of a command
_PYTHON = re.compile(r"""[{[]['"]|'[:,] |(?<![=\w])(None|True|False)\b""")
_WITHOUT_UNIT = re.compile(r"(?<![\w.:/#*-])\d{7,}(?![\w.:-])(?! [KMGTPB%]| TiB)")


def unreadable(text):
    """What makes a text hard to read on a terminal of 80 columns: sentences."""
    lines = text.split("\n")
    for line, following in zip(lines, [*lines[1:], None], strict=True):
        # a path is whole, so that it can be copied
        if len(line) > 80 and " " in line.strip():
            yield f"{len(line)} columns: {line[:100]}"
        if line.strip() and line == following:
            yield f"twice: {line[:80]}"
        if _PYTHON.search(line):
            yield f"Python: {line[:80]}"
        if _WITHOUT_UNIT.search(line):
            yield f"a size without unit: {line[:80]}"
    if not text.strip():
        yield "nothing"


def with_leaves(data, leaf):
    """The data with another text and another number in all places. leaf: both."""
    if isinstance(data, dict):
        return {key: with_leaves(value, leaf) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [with_leaves(value, leaf) for value in data]
    if isinstance(data, str):
        return leaf[0]
    return data if isinstance(data, (bool, type(None))) else leaf[1]


@pytest.mark.parametrize("verb", VERBS)
def test_no_place_of_an_answer_breaks_it(call, draw, verb):
    good, _ = call(verb)
    _, usual = counted(lambda: list(wrong(verb, *call(verb), good, draw)))
    cases = [
        (fun, what, data)
        for fun, whole in good.read.items()
        for what, data in hostile.twisted(whole)
    ]
    bad = {}
    for fun, what, data in hostile.sample(cases, verb + SEED, FEW):

        def twist(asked, whole, fun=fun, data=data):
            return data if asked == fun else whole

        whys, calls = counted(lambda by=twist: list(wrong(verb, *call(verb, by), good, draw)))
        for why in whys:
            place = ".".join(map(str, what[0]))
            bad.setdefault(f"{fun} {why}", f"{place} {what[1]} {hostile.show(what[2])}")
        if calls > MOST * usual:
            bad[f"{fun} {what[0]}"] = f"it works {calls / usual:.0f} times as much"
    assert not bad, "\n".join(f"{where}: {why}" for why, where in bad.items())


@pytest.mark.parametrize("verb", VERBS)
def test_no_argument_of_the_verb_breaks_it(call, draw, verb):
    cloud, _ = call(verb)
    names = sorted({*cloud.parameters, *VERBS[verb][0]} - {"kwargs"})
    bad = {}
    for name, value in hostile.sample(
        [(name, value) for name in names for value in hostile.VALUES], verb + SEED, FEW // 4
    ):
        cloud, found = call(verb, **{name: value})
        for why in wrong_words(cloud, found, draw):
            bad.setdefault(f"{name} {why}", hostile.show(value))
    assert not bad, "\n".join(f"{where}: {why}" for why, where in bad.items())


LISTED = {
    "web1": {"mem": 64, "cpu": 1, "seed": False, "hypervisor": "test", "groups": ["web"],
             "labels": {"rack": "a"}, "prefer": {"rack": "b"}, "metadata": {"owner": "me"},
             "disks": [{"name": "system", "size": 16}], "host": "hv1"},
    "new1": {"memory": 64, "size": 16, "timeout": 5, "nic": None, "seed": False,
             "hypervisor": "test", "group_policy": "spread", "start": True, "image": None},
}  # fmt: skip


def test_no_place_of_a_deployment_breaks_it(call, draw):
    bad = {}
    for what, data in hostile.sample(hostile.twisted(LISTED), f"listed{SEED}", FEW * 4):
        cloud, found = call("deployed", guests=data, remove=False)
        for why in wrong_words(cloud, found, draw):
            place = ".".join(map(str, what[0]))
            bad.setdefault(f"{place} {why}", f"{what[1]} {hostile.show(what[2])}")
    assert not bad, "\n".join(f"{where}: {why}" for why, where in bad.items())


@pytest.mark.parametrize(
    ("verb", "argument"),
    [
        ("shutdown", "timeout"), ("init", "timeout"), ("capacity", "disk_gib"),
        ("rebalance", "threshold"),
    ],
)  # fmt: skip
def test_a_number_that_is_none_is_named(call, verb, argument):
    for value in ("x", "nan", -1, True, [], None, b"7", 10**400):
        cloud, found = call(verb, **{argument: value})
        text = json.dumps(found)
        assert f"{argument} must be a number from 0" in text, text
        assert not cloud.done


STEPS = [
    {"message": "web1: creating disk", "percent": 12, "within_s": 30, "step": "copy"},
    {"text": "it moves", "percent": 12.5, "speed": 2**20, "dirty_rate": 7, "elapsed_s": 3.0},
    {"percent": 12.5, "speed": 2**20, "dirty_rate": 7, "elapsed_s": 3.0},
]  # fmt: skip


@pytest.mark.parametrize("verb", ["init", "clone", "rename", "migrate"])
def test_no_place_of_an_event_breaks_it(call, draw, verb):
    cases = [case for step in STEPS for case in hostile.twisted(step) if isinstance(case[1], dict)]
    good, found = call(verb)
    cases = hostile.sample(cases, verb + SEED, FEW * 4)
    for start in range(0, len(cases), 20):
        some = cases[start : start + 20]
        cloud, same = call(verb, says=[said for _, said in some])
        assert not list(wrong(verb, cloud, same, good, draw)), some
        assert str(same) == str(found)
