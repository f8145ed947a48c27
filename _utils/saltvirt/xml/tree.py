"""Find, insert and read nodes of an ElementTree, preserving the document's layout."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from saltvirt.errors import InvalidInput

_NAMESPACE = re.compile(r"""\sxmlns:([\w.-]+)\s*=\s*["']([^"'<>]+)["']""")
_STEP = re.compile(r"(?:\{[^}]*\}|[^/])+")
_RESERVED_PREFIX = re.compile(r"ns\d+")
_OWN_NAMESPACES: dict[str, str] = {}

# tags, from a node down to one below it
Steps = tuple[str, ...]


def own_namespace(prefix: str, uri: str) -> None:
    """Always write this namespace with this prefix, independent of the parsed document."""
    ElementTree.register_namespace(prefix, uri)
    _OWN_NAMESPACES[prefix] = uri


def parse(text: object) -> ElementTree.Element:
    """The root node of an XML text; its namespaces keep their prefixes when it is written.

    Raises InvalidInput if the text is not XML.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"not an XML document: {text!r}")
    for prefix, uri in _NAMESPACE.findall(text):
        is_own = prefix in _OWN_NAMESPACES or uri in _OWN_NAMESPACES.values()
        if not is_own and not _RESERVED_PREFIX.fullmatch(prefix):
            ElementTree.register_namespace(prefix, uri)
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, UnicodeEncodeError) as exc:
        raise InvalidInput(f"not an XML document: {exc}") from exc


def steps_of(path: str) -> tuple[Steps, str | None]:
    """``a/b/@c`` as (("a", "b"), "c"); braces of namespaces may contain slashes."""
    parts = _STEP.findall(path)
    if parts and parts[-1].startswith("@"):
        return tuple(parts[:-1]), parts[-1][1:]
    return tuple(parts), None


def find(node: ElementTree.Element | None, steps: Steps) -> ElementTree.Element | None:
    """The node below ``node`` at these steps, or None."""
    for step in steps:
        if node is None:
            return None
        node = node.find(step)
    return node


def insert(parent: ElementTree.Element, child: ElementTree.Element, order: list[str]) -> None:
    """Insert a child after the siblings that come before it in ``order``."""
    rank = {tag: number for number, tag in enumerate(order)}
    child_rank = rank.get(child.tag, len(order))
    before = [
        index
        for index, sibling in enumerate(parent)
        if rank.get(sibling.tag, len(order)) <= child_rank
    ]
    index = before[-1] + 1 if before else 0
    if len(parent):  # keep the layout of the document
        previous = parent[index - 1] if index else None
        child.tail = previous.tail if previous is not None else parent.text
        if previous is not None and index == len(parent):
            previous.tail = parent[index - 2].tail if index > 1 else parent.text
    parent.insert(index, child)


def empty(node: ElementTree.Element) -> bool:
    """True if a node has no attribute, no child and no text."""
    return not (len(node) or node.attrib or (node.text or "").strip())


def child(node: ElementTree.Element, path: str) -> ElementTree.Element:
    """The required child node of ``node``. Raises InvalidInput if it is missing."""
    element = node.find(path)
    if element is None:
        raise InvalidInput(f"<{node.tag}> has no <{path}>")
    return element
