"""The definitions in libvirt's source tree: the kind of each file, and nested definitions."""

import copy
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

# root element: schema of virt-xml-validate
SCHEMAS = {
    "domain": "domain",
    "inactiveDomain": None,
    "network": "network",
    "pool": "storagepool",
    "volume": "storagevol",
    "domainsnapshot": "domainsnapshot",
    "domaincheckpoint": "domaincheckpoint",
    "secret": "secret",
    "interface": "interface",
    "filter": "nwfilter",
    "capabilities": "capability",
    "domainCapabilities": "domaincaps",
    "storagepoolCapabilities": "storagepoolcaps",
    "device": "nodedev",
}
# in these a domain's definition stands inside
AROUND = ("domstatus", "domainsnapshot", "domaincheckpoint")


@dataclass(frozen=True)
class Definition:
    """One definition: the file below the tree (``a.xml`` or ``a.xml:domain``), its kind, its
    XML text."""

    file: str
    kind: str
    text: str

    def schema(self):
        """The name of its schema, None where libvirt has none for it alone."""
        return SCHEMAS[self.kind] if ":" not in self.file else None


def find(tree):
    """All definitions below a folder, sorted by file; what is no XML is left out."""
    found = []
    for path in sorted(Path(tree).rglob("*.xml")):
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            root = ElementTree.fromstring(text)
        except ElementTree.ParseError:
            continue
        name = str(path.relative_to(tree))
        if root.tag in SCHEMAS and _is_one(root):
            found.append(Definition(name, root.tag, text))
        if root.tag in AROUND:
            found += [Definition(f"{name}:{node.tag}", "domain", part(node)) for node in _in(root)]
    return found


def _is_one(root):
    """A ``<device>``, an ``<interface>`` and a ``<filter>`` can be something else, too."""
    if root.tag == "interface":
        return root.get("name") is not None
    return root.find("name") is not None or root.tag not in ("device", "domain")


def _in(root):
    return [node for tag in ("domain", "inactiveDomain") for node in root.findall(tag)]


def part(node):
    """A part of a document as a document of its own."""
    node = copy.deepcopy(node)
    node.tag, node.tail = "domain", None
    return ElementTree.tostring(node, encoding="unicode")
