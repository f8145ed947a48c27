"""Whether this host takes a guest. Asked under a lock, so that nothing is given away twice.

What is promised to a guest stands in its definition from the moment it is admitted: it
is defined under the same lock, marked with the process that makes its disks. If that
process dies, the mark outlives it, and the next init or repair of the name cleans up.
"""

import os
from dataclasses import dataclass, replace

from saltvirt import errors, settings
from saltvirt.host import (
    disks,
    domain,
    files,
    guest_lock,
    images_folder,
    inventory,
    migrate_arrivals,
    record,
)
from saltvirt.host.connection import libvirt
from saltvirt.images import cache, locks
from saltvirt.placement import choose, facts
from saltvirt.placement import policy as policies


@dataclass(frozen=True)
class Gate:
    """What admission on this host goes by.

    get: Salt's ``config.get``. images_dir: the folder of images. pool: the storage pool where
    guests' disks are made; None: in the folder.
    """

    get: object
    images_dir: str
    pool: str | None = None

    @classmethod
    def configured(cls, get):
        """The Gate of this host's configuration."""
        place = images_folder.configured(get)
        return cls(get, place.folder, place.pool)

    @property
    def disks_in(self):
        """The folder or the pool where guests' disks are made."""
        return self.pool or self.images_dir

    @property
    def cache_dir(self):
        """Where the images are that guests stand on."""
        return os.path.join(self.images_dir, cache.BASE)

    def policy(self):
        """The placement policy of the configuration, as the master's placement has it."""
        return policies.from_config(settings.option(self.get, "placement", {}))

    def guest(self, what, *names):
        """The locks of guests, for a ``with`` block: see ``guest_lock.held``."""
        return guest_lock.held(guest_lock.folder(self.get), what, *names)

    def lock(self):
        """The per-host lock, for a ``with`` block; the kernel frees it when we die.

        It lies in a folder that only root can write to (``virt:lock``, /run/salt-virt).
        """
        folder = locks.private(str(settings.option(self.get, "lock", locks.RUN)))
        return locks.exclusive(os.path.join(folder, "admit.lock"))


def _pending_bytes(conn):
    """What guests that are being made will take, for disks that are not there yet: by storage
    pool, and under None in the images folder."""
    total = {}
    for dom in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_INACTIVE):
        for tree in files.trees(dom)[:1]:
            found = record.of_tree(tree)
            if found and found.creating:
                for disk in found.disks:
                    if not _is_there(conn, disk):
                        total[disk.pool] = total.get(disk.pool, 0) + (disk.size_bytes or 0)
    return total


def _is_there(conn, disk):
    if disk.pool:
        return files.volume_path(conn, disk.pool, disk.volume) is not None
    return not disk.path or os.path.exists(disk.path)


def host_facts(conn, gate):
    """This host as placement sees it, with what is being made counted."""
    data = inventory.read(conn, gate.get, gate.images_dir)
    for pool, size in _pending_bytes(conn).items():
        place = data["pools"].get(pool, {}) if pool else data["images_folder"]
        place["promised_bytes"] = place.get("promised_bytes", 0) + size
    return facts.host_from_inventory(conn.getHostname(), data)


def name_is_free(conn, name):
    """Raises AlreadyExists when another domain has the name, and is not a leftover."""
    dom = domain.find(conn, name)
    if dom is None:
        return
    found = record.of_domain(dom)
    if found and found.creating:
        if not record.works(found.creating):
            return
        raise errors.AlreadyExists(f"{name} is being created on {conn.getHostname()} right now")
    raise errors.AlreadyExists(f"{name} exists already on {conn.getHostname()}")


def leftover(conn, name):
    """The domain of this name that a dead process left half made, or None."""
    dom = domain.find(conn, name)
    if dom is None:
        return None
    found = record.of_domain(dom)
    stale = found and found.creating and not record.works(found.creating)
    return dom if stale else None


def still(conn, gate, request):
    """Raises Refused when a guest that is being moved here was promised the room meanwhile.

    A migration takes no lock of ours: it writes its promise and looks then. So does an init:
    it calls this once its guest is defined.
    """
    if migrate_arrivals.here(present=()):
        check(conn, gate, replace(request, disk_bytes=0, pools={}), new=False)


def check(conn, gate, request, new=True):
    """Raises Refused, with the host and the reason, when the host does not take the guest.

    request: placement's Request. new: raise AlreadyExists for a name that is taken; without,
    it is the guest that is there, which wants more.
    """
    if new:
        name_is_free(conn, request.name)
    host = host_facts(conn, gate)
    others = tuple(guest for guest in host.guests if guest.name != request.name)
    fell = choose.first_reason(replace(host, guests=others), request, gate.policy())
    if fell:
        raise errors.Refused(f"{host.name}: {fell[1]}")


def request_of(built, works=()):
    """placement's Request for a guest's xml Domain. works: disks.Work of its disks."""
    sources = {(nic.type, nic.source) for nic in built.interfaces}
    return facts.Request(
        name=built.name,
        vcpus=built.vcpu.maximum or 1,
        memory_kib=built.memory_kib,
        disk_bytes=disks.in_folder_bytes(works),
        hypervisor=built.type,
        # VMware's are port groups of its own
        bridges=frozenset(
            source for kind, source in sources if kind == "bridge" and built.type != "vmware"
        ),
        networks=frozenset(source for kind, source in sources if kind == "network"),
        pools=disks.pool_bytes(works),
        cpu_model=built.cpu.model if built.cpu.mode == "custom" else None,
    )
