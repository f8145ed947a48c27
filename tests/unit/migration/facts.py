"""Reports of a guest and a host that match; a test changes its subject."""

import copy
from dataclasses import fields

from saltvirt.migration.facts import (
    BackingFile,
    DiskReport,
    DomainReport,
    GuestReport,
    LocationReport,
    MachineReport,
    TargetReport,
)
from saltvirt.migration.reservation import Reservation
from saltvirt.placement.facts import Guest

_DISK = {
    "target": "vda", "device": "disk", "type": "file", "source": "/vm/web1_vda.qcow2",
    "format": "qcow2", "size_bytes": 2**30, "used_bytes": 10 * 2**20, "read_only": False,
    "shareable": False, "cache": "", "discard": "", "chain": [],
}  # fmt: skip
_GUEST = {
    "name": "web1", "uuid": "u-1", "host": "hv1", "host_uuid": "h-1", "state": "running",
    "active": True,
    "persistent": True, "job": None, "managed_save": False, "snapshots": 0,
    "orphaned_layers": [],
    "memory_kib": 524288, "vcpus": 2, "arch": "x86_64", "machine": "pc", "virt_type": "kvm",
    "hypervisor": "QEMU", "qemu": 7002022, "hostdevs": [], "filesystems": [], "tpm": False,
    "autostart": False, "nvram": None, "emulator": "/usr/bin/kvm", "libvirt": 9000000,
    "nics": [{"type": "bridge", "source": "br0", "mac": "52:54:00:00:00:01"}], "disks": [_DISK],
}  # fmt: skip
_HOST = {
    "hostname": "hv2", "host_uuid": "h-2", "domains": [], "hypervisor": "QEMU", "qemu": 7002022,
    "cpu_error": None, "cpus": 8, "memory_kib": 4 * 2**20, "reservations": [], "libvirt": 11003000,
    "bridges": ["br0"], "links": ["eth0"], "networks": {"default": True},
    "locations": {"/vm/web1_vda.qcow2": LocationReport(shared=False)},
    "free_bytes": {"/vm": 2**34},
}  # fmt: skip
_MACHINE = {"max_vcpus": 255, "emulator": "/usr/bin/kvm", "has_emulator": True}
BASE = {"path": "/images/debian.qcow2", "format": "qcow2", "size_bytes": 2**30, "used_bytes": 2**28}


def disk(**changes):
    """As plain data."""
    return copy.deepcopy(_DISK) | changes


def report(**changes):
    """A DiskReport."""
    return DiskReport.from_answer(disk(**changes), "hv1")


def backing(**changes):
    """A BackingFile."""
    return BackingFile.from_answer(BASE | changes, "hv1")


def guest(**changes):
    """A GuestReport. changes: of it as plain data."""
    return GuestReport.from_answer(copy.deepcopy(_GUEST) | changes, "hv1")


def host(**changes):
    """A TargetReport. changes: of its fields, or of its machine's."""
    own = {field.name for field in fields(TargetReport)}
    machine = _MACHINE | {key: value for key, value in changes.items() if key not in own}
    found = copy.deepcopy(_HOST) | {key: value for key, value in changes.items() if key in own}
    return TargetReport(**{**found, "machine": MachineReport(**machine)})


def place(exists=False, shared=False, **more):
    """What the target has at a place."""
    return LocationReport(exists, shared, **more)


def volume(kind="dir", **changes):
    """A disk that is a volume of a pool ``data``."""
    what = {"logical": "block", "iscsi": "block", "scsi": "block", "rbd": "network"}
    source = {"hosts": [], "devices": [], "dir": None, "name": None} | changes.pop("from_", {})
    pool = {"name": "data", "type": kind, "folder": "/data", "source": source}
    mine = {"type": what.get(kind, "file"), "source": "/data/web1_vda", "fs": "ext4"}
    return disk(pool=pool, volume="web1_vda", **mine | changes)


def domain(macs=(), **changes):
    """A guest that the target has."""
    found = {"name": "b", "uuid": "u", "state": "running", "vcpus": 1, "memory_kib": 2**19}
    return DomainReport(Guest(**found | changes), tuple(macs))


def reservation(**changes):
    """One that is on its way to the target."""
    return Reservation(**{"name": "c", "vcpus": 1, "memory_kib": 2**19, "created_at": 1, **changes})
