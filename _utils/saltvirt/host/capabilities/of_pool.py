"""Which kinds of storage pools this libvirt can have.

https://libvirt.org/formatstoragecaps.html
"""

from xml.etree import ElementTree


def read(conn):
    """One dict for each kind of pool: see ``virt.pool_capabilities``."""
    return parse(conn.getStoragePoolCapabilities())


def parse(text):
    """The same, of libvirt's XML."""
    return [_pool(pool) for pool in ElementTree.fromstring(text).findall("pool")]


def _pool(pool):
    found = {"name": pool.get("type"), "supported": pool.get("supported") == "yes"}
    options = {
        kind: _options(element)
        for kind, tag in (("pool", "poolOptions"), ("volume", "volOptions"))
        if (element := pool.find(tag)) is not None
    }
    options = {kind: value for kind, value in options.items() if value}
    return {**found, "options": options} if options else found


def _options(element):
    found = {e.get("name"): [v.text for v in e.findall("value")] for e in element.findall("enum")}
    default = element.find("defaultFormat")
    if default is not None:
        found["default_format"] = default.get("type")
    return found
