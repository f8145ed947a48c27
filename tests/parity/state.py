"""The state of a host as libvirt reports it, and the preparation of a row. Runs in both Pythons."""

import json
import os
import re
import subprocess

import libvirt

INACTIVE = 2
# a snapshot of a row was made in the second after the one before it: Salt 3007 sorts by seconds
FIRST_SNAPSHOT_S = 1_700_000_000
CREATION_TIME = re.compile("<creationTime>\\d+<")
# what a pool's file system and a volume's file say of the moment, whoever writes beside them
POOL_MOMENT = re.compile("<(allocation|available)\\b.*?</\\1>")
VOLUME_MOMENT = re.compile("<timestamps>.*?</timestamps>", re.S)


def dump(conn):
    """What there is: kind → name → what libvirt says of it."""
    found = {"domains": {}, "networks": {}, "pools": {}}
    for dom in conn.listAllDomains():
        found["domains"][dom.name()] = {
            "state": dom.state()[0],
            "persistent": bool(dom.isPersistent()),
            "autostart": bool(dom.autostart()),
            "xml": dom.XMLDesc(INACTIVE),
            "snapshots": sorted(dom.snapshotListNames()),
        }
    for network in have(conn.listAllNetworks):
        found["networks"][network.name()] = {
            "active": bool(network.isActive()),
            "persistent": bool(network.isPersistent()),
            "autostart": bool(network.autostart()),
            "xml": network.XMLDesc(),
        }
    for pool in have(conn.listAllStoragePools):
        active = pool.isActive()
        found["pools"][pool.name()] = {
            "active": bool(active),
            "persistent": bool(pool.isPersistent()),
            "autostart": bool(pool.autostart()),
            "xml": pool.XMLDesc(),
            "volumes": {v.name(): v.XMLDesc() for v in pool.listAllVolumes()} if active else {},
        }
    return found


def have(listing):
    """What a listing gives; nothing where the driver has none of the kind."""
    try:
        return listing()
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise
        return []


def changed(before, after):
    """What differs: kind → name → what it is now, None where it went."""
    found = {}
    for kind, now in after.items():
        was = before[kind]
        for name in {*was, *now}:
            if lasting(kind, was.get(name)) != lasting(kind, now.get(name)):
                found.setdefault(kind, {})[name] = now.get(name)
    return found


def lasting(kind, thing):
    """A thing of dump without what other writers on the machine change."""
    if kind != "pools" or thing is None:
        return thing
    volumes = {name: VOLUME_MOMENT.sub("", xml) for name, xml in thing["volumes"].items()}
    return {**thing, "xml": POOL_MOMENT.sub("", thing["xml"]), "volumes": volumes}


def image(path):
    """[size in bytes, format] of a disk image that a row made."""
    argv = ["qemu-img", "info", "--output=json", path]
    found = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    return [found["virtual-size"], found["format"]]


def empty(conn, keep):
    """Take away what a row left; keep: the names by kind that a fresh host has."""
    for dom in conn.listAllDomains():
        if dom.name() in keep["domains"]:
            continue
        persistent = dom.isPersistent()
        if dom.isActive():
            dom.destroy()
        if persistent:
            for snapshot in dom.listAllSnapshots():
                snapshot.delete()
            dom.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
    for kind, everything in (
        ("networks", conn.listAllNetworks),
        ("pools", conn.listAllStoragePools),
    ):
        for it in have(everything):
            if it.name() not in keep[kind]:
                persistent = it.isPersistent()
                if it.isActive():
                    it.destroy()
                if persistent:
                    it.undefine()


def prepare(conn, steps):
    """Does a row's steps by libvirt itself: lists of a verb and what it takes."""
    for verb, *what in steps:
        _STEPS[verb](conn, *what)


def _file(_conn, path, mib, kind="raw", base=None):
    backing = ["-b", base, "-F", "raw"] if base else []
    _image(_conn, path, mib * 1024**2, kind, *backing)


def _image(_conn, path, size_bytes, kind, *more):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    argv = ["qemu-img", "create", "-q", "-f", kind, *more, path, str(size_bytes)]
    subprocess.run(argv, check=True)


def _snapshot(conn, name, xml):
    guest = conn.lookupByName(name)
    made_s = FIRST_SNAPSHOT_S + guest.snapshotNum()
    made = guest.snapshotCreateXML(xml).getXMLDesc()
    again = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
    guest.snapshotCreateXML(CREATION_TIME.sub(f"<creationTime>{made_s}<", made), again)


def _pool(conn, xml, start=True):
    pool = conn.storagePoolDefineXML(xml)
    if start:
        pool.create()


def _network(conn, xml, start=True):
    network = conn.networkDefineXML(xml)
    if start:
        network.create()


_LOOKUPS = {
    "domains": lambda conn: conn.lookupByName,
    "networks": lambda conn: conn.networkLookupByName,
    "pools": lambda conn: conn.storagePoolLookupByName,
}
_STEPS = {
    "file": _file,
    "image": _image,
    "text": lambda _conn, path, text: open(path, "w", encoding="utf-8").write(text),  # noqa: SIM115
    "define": lambda conn, xml: conn.defineXML(xml),
    "start": lambda conn, name: conn.lookupByName(name).create(),
    "destroy": lambda conn, name: conn.lookupByName(name).destroy(),
    "suspend": lambda conn, name: conn.lookupByName(name).suspend(),
    "autostart": lambda conn, name, kind: _LOOKUPS[kind](conn)(name).setAutostart(1),
    "snapshot": _snapshot,
    "pool": _pool,
    "pool-destroy": lambda conn, name: conn.storagePoolLookupByName(name).destroy(),
    "volume": lambda conn, pool, xml: conn.storagePoolLookupByName(pool).createXML(xml),
    "network": _network,
    "network-destroy": lambda conn, name: conn.networkLookupByName(name).destroy(),
}
