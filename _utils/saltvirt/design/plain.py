"""An element as plain data: what it says, not how it is written."""

import functools

from saltvirt.xml.base import Child, Children, Prop


@functools.cache
def declared(cls):
    """The names and declarations of the properties of a class of elements."""
    found = {}
    for klass in reversed(cls.__mro__):
        for name, value in vars(klass).items():
            if isinstance(value, Prop | Child | Children):
                found[name] = value
    return found


def plain(element, skip=()):
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
