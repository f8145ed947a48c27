"""Compare two XML documents: elements with their attributes, texts and order; not the prefixes of
namespaces, comments, the order of attributes, or white space between elements."""

import copy
from xml.etree import ElementTree


def form(node):
    """A node as nested tuples; equal for nodes that mean the same."""
    text = node.text or ""
    if len(node):
        text = text.strip()
    return (node.tag, sorted(node.attrib.items()), text, [form(child) for child in node])


def parsed(text):
    """The form of an XML text."""
    return form(ElementTree.fromstring(text))


def without(node, places):
    """The form of a node from which these places are taken, with parents that this empties.

    places: paths below it, as ElementTree finds them; one that ends in ``/@name`` is an
    attribute.
    """
    node = copy.deepcopy(node)
    for place in places:
        path, _, attribute = place.partition("/@")
        _take(node, path.split("/"), attribute)
    return form(node)


def _take(node, steps, attribute):
    if not steps:
        node.attrib.pop(attribute, None)
        return
    for child in node.findall(steps[0]):
        gone = len(steps) == 1 and not attribute
        if not gone:
            _take(child, steps[1:], attribute)
            gone = not (len(child) or child.attrib or (child.text or "").strip())
        if gone:
            node.remove(child)


def lines(node):
    """A line for each start of an element, its attributes sorted, and each text."""
    found = []
    for each in node.iter():
        words = [each.tag, *(f"{name}={value!r}" for name, value in sorted(each.attrib.items()))]
        found.append(f"<{' '.join(words)}>{(each.text or '').strip()}")
    return found


def difference(one, other, most=3):
    """The first lines in which two nodes differ, in one line."""
    old, new = lines(one), lines(other)
    gone = [f"-{line}" for line in old if line not in new][:most]
    come = [f"+{line}" for line in new if line not in old][:most]
    return " ".join([*gone, *come]) or "their order or number"
