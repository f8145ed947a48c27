"""Convert elements to plain data, independent of the XML's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.xml.base import Child, Children, Prop

if TYPE_CHECKING:
    from collections.abc import Collection

    from saltvirt.xml.base import Element

Declared = Prop[Any] | Child[Any] | Children[Any]

_CACHE: dict[type[Element], dict[str, Declared]] = {}


def declarations(cls: type[Element]) -> dict[str, Declared]:
    """The names and declarations of the properties of a class of elements."""
    properties = _CACHE.get(cls)
    if properties is None:
        properties = _CACHE[cls] = _declarations(cls)
    return properties


def _declarations(cls: type[Element]) -> dict[str, Declared]:
    properties: dict[str, Declared] = {}
    for klass in reversed(cls.__mro__):
        for name, value in vars(klass).items():
            if isinstance(value, Prop | Child | Children):
                properties[name] = value
    return properties


def plain(element: Element, skip: Collection[str] = ()) -> dict[str, Any]:
    """{property: value}, nested; absent values are omitted."""
    data = {}
    for name, kind in declarations(type(element)).items():
        if name in skip:
            continue
        value = getattr(element, name)
        if isinstance(kind, Child):
            value = plain(value, skip) if value else None
        elif isinstance(kind, Children):
            value = [plain(child, skip) for child in value]
        if value not in (None, {}, []):
            data[name] = value
    return data
