"""Reports of a guest and a host which fit each other; a test changes what it is about."""

import copy

_DISK = {
    "target": "vda", "device": "disk", "type": "file", "source": "/vm/web1_vda.qcow2",
    "format": "qcow2", "size_bytes": 2**30, "used_bytes": 10 * 2**20, "read_only": False,
    "shareable": False, "cache": "", "discard": "", "chain": [],
}  # fmt: skip
_GUEST = {
    "name": "web1", "uuid": "u-1", "host_uuid": "h-1", "state": "running", "active": True,
    "persistent": True, "job": None, "managed_save": False, "snapshots": 0, "checkpoints": 0,
    "apart": [],
    "memory_kib": 524288, "vcpus": 2, "arch": "x86_64", "machine": "pc", "virt_type": "kvm",
    "hypervisor": "QEMU", "qemu": 7002022, "hostdevs": [], "filesystems": [], "tpm": False,
    "autostart": False, "nvram": None, "emulator": "/usr/bin/kvm", "libvirt": 9000000,
    "nics": [{"type": "bridge", "source": "br0", "mac": "52:54:00:00:00:01"}], "disks": [_DISK],
}  # fmt: skip
_HOST = {
    "hostname": "hv2", "host_uuid": "h-2", "domains": [], "hypervisor": "QEMU", "qemu": 7002022,
    "machine_error": None, "cpu_error": None, "cpus": 8, "memory_kib": 4 * 2**20,
    "reservations": [], "max_vcpus": 255, "libvirt": 11003000,
    "emulator": "/usr/bin/kvm", "has_emulator": True,
    "bridges": ["br0"], "links": ["eth0"], "networks": {"default": True},
    "paths": {"/vm/web1_vda.qcow2": {"exists": False, "shared": False}},
    "free_bytes": {"/vm": 2**34},
}  # fmt: skip
BASE = {"path": "/images/debian.qcow2", "format": "qcow2", "size_bytes": 2**30, "used_bytes": 2**28}


def disk(**changes):
    return copy.deepcopy(_DISK) | changes


def guest(**changes):
    return copy.deepcopy(_GUEST) | changes


def host(**changes):
    return copy.deepcopy(_HOST) | changes


def volume(kind="dir", **changes):
    """A disk that is a volume of a pool ``data``."""
    what = {"logical": "block", "iscsi": "block", "scsi": "block", "rbd": "network"}
    source = {"hosts": [], "devices": [], "dir": None, "name": None} | changes.pop("from_", {})
    pool = {"name": "data", "type": kind, "folder": "/data", "source": source}
    mine = {"type": what.get(kind, "file"), "source": "/data/web1_vda", "fs": "ext4"}
    return disk(pool=pool, volume="web1_vda", **mine | changes)


def domain(**changes):
    """A guest that the target has."""
    found = {"name": "b", "uuid": "u", "state": "running", "macs": [], "vcpus": 1}
    return {**found, "memory_kib": 2**19, "autostart": False, **changes}
