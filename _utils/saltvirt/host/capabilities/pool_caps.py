"""Storage pool types that libvirt supports.

https://libvirt.org/formatstoragecaps.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict
from xml.etree import ElementTree

if TYPE_CHECKING:
    import libvirt


# the values of each enum, and default_format
Options = dict[str | None, list[str | None] | str | None]


class PoolKind(TypedDict, total=False):
    """A pool type.

    options: options of the pool and of its volumes, by ``pool`` and ``volume``.
    """

    name: str | None
    supported: bool
    options: dict[str, Options]


def read(conn: libvirt.virConnect) -> list[PoolKind]:
    """Return one dict for each pool type; see ``virt.pool_capabilities``."""
    return parse(conn.getStoragePoolCapabilities())


def parse(text: str) -> list[PoolKind]:
    """Parse libvirt's XML; see :func:`read`."""
    return [_pool(pool) for pool in ElementTree.fromstring(text).findall("pool")]


def _pool(pool: ElementTree.Element) -> PoolKind:
    facts: PoolKind = {"name": pool.get("type"), "supported": pool.get("supported") == "yes"}
    options = {
        kind: _options(element)
        for kind, tag in (("pool", "poolOptions"), ("volume", "volOptions"))
        if (element := pool.find(tag)) is not None
    }
    options = {kind: value for kind, value in options.items() if value}
    if options:
        facts["options"] = options
    return facts


def _options(element: ElementTree.Element) -> Options:
    parsed: Options = {
        e.get("name"): [v.text for v in e.findall("value")] for e in element.findall("enum")
    }
    default = element.find("defaultFormat")
    if default is not None:
        parsed["default_format"] = default.get("type")
    return parsed
