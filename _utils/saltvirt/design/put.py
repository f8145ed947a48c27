"""Apply the user's settings to XML; settings that are not given are unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from saltvirt.spec.base import REMOVE, value_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from saltvirt.spec.base import Spec
    from saltvirt.xml.base import Element

E = TypeVar("E", bound="Element")
T = TypeVar("T")


def put(element: E, spec: Spec, *names: str, **renamed: str) -> E:
    """Copy fields of a Spec to an element's properties: those that are declared with a property of
    the element, and further ones. Return the element.

    names: fields with the name of the property; renamed: property=field.
    """
    for name, target in spec.properties():
        value = getattr(spec, name)
        if value is None:
            continue
        if isinstance(target, type):
            if value is REMOVE:
                clear(element, target)
            else:
                put(element, value)
        elif isinstance(element, target.owner):
            target.__set__(element, value_or_none(value))
    for prop, name in {**{n: n for n in names}, **renamed}.items():
        value = getattr(spec, name)
        if value is REMOVE:
            setattr(element, prop, None)
        elif value is not None:
            setattr(element, prop, value)
    return element


def clear(element: Element, spec: type[Spec]) -> None:
    """Remove the properties of an element with which fields of a Spec are declared."""
    for _, target in spec.properties():
        if isinstance(target, type):
            clear(element, target)
        elif isinstance(element, target.owner):
            target.__set__(element, None)


def is_given(value: T | None) -> TypeGuard[T]:
    """True if the user gave a value (neither None nor REMOVE)."""
    return value is not None and value is not REMOVE


def replace(element: Element, name: str, new: Sequence[Element]) -> None:
    """Set a list of children unless it already has the same content."""
    view = getattr(element, name)
    if [child.tostring().strip() for child in view] != [child.tostring().strip() for child in new]:
        setattr(element, name, new)


def merge(
    element: Element,
    name: str,
    desired: Mapping[Any, Any] | None,
    kind: type[Element],
    key: str,
    edit: str | Callable[[Any, Any], object],
) -> None:
    """Edit keyed children: ``desired`` is {key: value}, and complete.

    If a value is REMOVE, only that child is removed, and the others are kept. kind: of the
    children. key: the property that identifies a child. edit: the property of the value, or
    edit(child, value).
    """
    if desired is None:
        return
    view = getattr(element, name)
    if desired is REMOVE:
        setattr(element, name, [])
        return
    existing = {getattr(child, key): child for child in view}
    if REMOVE not in desired.values():
        desired = {**{word: REMOVE for word in existing if word not in desired}, **desired}
    for word, value in desired.items():
        child = existing.get(word)
        if value is REMOVE:
            if child is not None:
                view.remove(child)
            continue
        if child is None:
            child = view.append(kind(**{key: word}))
        if isinstance(edit, str):
            setattr(child, edit, value)
        else:
            edit(child, value)
