"""Which guests use which volumes, also as the base of their disks."""

import contextlib
from dataclasses import dataclass, field
from xml.etree import ElementTree

from saltvirt.host.connection import libvirt


@dataclass
class Usage:
    """By a volume's path (or ``pool/volume`` where it has none): sorted guest names."""

    guests: dict = field(default_factory=dict)
    running: dict = field(default_factory=dict)

    def of(self, *names):
        return sorted({guest for name in names for guest in self.guests.get(name, ())})

    def running_of(self, *names):
        return sorted({guest for name in names for guest in self.running.get(name, ())})


def read(conn, backing):
    """The Usage of every disk of every guest, what a disk is based on included.

    backing: path to the path it is based on, of all known volumes.
    A guest that vanishes while it is read uses nothing.
    """
    usage = Usage()
    for domain in conn.listAllDomains():
        with contextlib.suppress(libvirt.libvirtError):
            name, active = domain.name(), domain.isActive()
            for path in _chains(_sources(domain, active), backing):
                usage.guests.setdefault(path, set()).add(name)
                if active:
                    usage.running.setdefault(path, set()).add(name)
    return usage


def _sources(domain, active):
    """What the guest's disks name: now, and when it is started again."""
    texts = [domain.XMLDesc(0)]
    if active and domain.isPersistent():
        texts.append(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    for text in texts:
        for disk in ElementTree.fromstring(text).iterfind("devices/disk"):
            for source in disk.iter("source"):
                yield from _names(source)


def _names(source):
    if source.get("volume"):
        yield f"{source.get('pool')}/{source.get('volume')}"
    for key in ("file", "dev", "dir", "name"):
        if source.get(key):
            yield source.get(key)


def _chains(names, backing):
    seen, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name and name not in seen:
            seen.add(name)
            yield name
            todo.append(backing.get(name))
