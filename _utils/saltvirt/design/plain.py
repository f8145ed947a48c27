"""An element as plain data: what it says, not how it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.xml.base import Child, Children, Prop

if TYPE_CHECKING:
    from collections.abc import Collection

    from saltvirt.xml.base import Element

Declared = Prop[Any] | Child[Any] | Children[Any]

_KNOWN: dict[type[Element], dict[str, Declared]] = {}


def declared(cls: type[Element]) -> dict[str, Declared]:
    """The names and declarations of the properties of a class of elements."""
    found = _KNOWN.get(cls)
    if found is None:
        found = _KNOWN[cls] = _declared(cls)
    return found


def _declared(cls: type[Element]) -> dict[str, Declared]:
    found: dict[str, Declared] = {}
    for klass in reversed(cls.__mro__):
        for name, value in vars(klass).items():
            if isinstance(value, Prop | Child | Children):
                found[name] = value
    return found


def plain(element: Element, skip: Collection[str] = ()) -> dict[str, Any]:
    """{property: value}, nested; what is absent is left out."""
    found = {}
    for name, kind in declared(type(element)).items():
        if name in skip:
            continue
        value = getattr(element, name)
        if isinstance(kind, Child):
            value = plain(value, skip) if value else None
        elif isinstance(kind, Children):
            value = [plain(child, skip) for child in value]
        if value not in (None, {}, []):
            found[name] = value
    return found
