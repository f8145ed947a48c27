"""Preserve elements of other programs when a definition is written again."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from saltvirt.design.plain_data import declarations
from saltvirt.xml.base import Child, Prop
from saltvirt.xml.tree import find

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from saltvirt.xml.base import Element
    from saltvirt.xml.tree import Steps


def keep_unknown(new: Element, actual: Element) -> None:
    """Copy the attributes and children that the class does not declare from one Element to another,
    including those of common children. Lists are not changed."""
    for steps, (attributes, tags) in _declared_names(type(new)).items():
        to, old = find(new.need(), steps), find(actual.need(), steps)
        if to is None or old is None:
            continue
        for name, value in old.attrib.items():
            if name not in attributes:
                to.attrib.setdefault(name, value)
        for node in old:
            if node.tag not in tags:
                to.append(copy.deepcopy(node))
    for name, kind in declarations(type(new)).items():
        if isinstance(kind, Child) and getattr(new, name) and getattr(actual, name):
            keep_unknown(getattr(new, name), getattr(actual, name))


def keep_unknown_of(
    new: Iterable[Element], actual: Iterable[Element], keys: Collection[str]
) -> None:
    """Do the same for items of two lists with equal values of the given properties."""
    by_key = {tuple(getattr(item, key) for key in keys): item for item in actual}
    for item in new:
        old = by_key.get(tuple(getattr(item, key) for key in keys))
        if old is not None:
            keep_unknown(item, old)


def _declared_names(cls: type[Element]) -> dict[Steps, tuple[set[str], set[str]]]:
    """{steps: (attributes, tags)} that a class declares for its elements."""
    names_by_steps: dict[Steps, tuple[set[str], set[str]]] = {(): (set(), set())}
    for kind in declarations(cls).values():
        for depth, tag in enumerate(kind.steps):
            names_by_steps.setdefault(kind.steps[:depth], (set(), set()))[1].add(tag)
        if isinstance(kind, Prop):  # elements below another one belong to its class
            declared_names = names_by_steps.setdefault(kind.steps, (set(), set()))
            if kind.attribute:
                declared_names[0].add(kind.attribute)
    return names_by_steps
