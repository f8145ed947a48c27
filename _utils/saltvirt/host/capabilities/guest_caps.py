"""The guest section of libvirt's capabilities as plain data."""

from __future__ import annotations

from typing import TypedDict
from xml.etree.ElementTree import Element

from saltvirt.xml import tree


class Machine(TypedDict, total=False):
    """A machine type.

    maxcpus: only if libvirt reports it.
    """

    alternate_names: list[str | None]
    maxcpus: int


class DomainType(TypedDict):
    """A domain type of an architecture."""

    emulator: str | None
    machines: dict[str | None, Machine]


class Arch(TypedDict, total=False):
    """An architecture.

    wordsize (in bits) and emulator: only if libvirt reports them.
    """

    name: str | None
    machines: dict[str | None, Machine]
    domains: dict[str | None, DomainType]
    wordsize: int
    emulator: str | None


class GuestFeature(TypedDict):
    """A feature.

    toggle: whether it can be turned on and off. default: whether it is on by default.
    """

    toggle: bool
    default: bool


class GuestCaps(TypedDict, total=False):
    """What can be run with one OS type and architecture."""

    os_type: str | None
    arch: Arch
    features: dict[str, GuestFeature]


def parse(guest: Element) -> GuestCaps:
    """Return a dict for a ``<guest>`` element: ``os_type``, ``arch``, ``features``."""
    arch = tree.child(guest, "arch")
    facts: GuestCaps = {
        "os_type": guest.findtext("os_type"),
        "arch": {
            "name": arch.get("name"),
            "machines": machines(arch),
            "domains": {
                domain.get("type"): {
                    "emulator": domain.findtext("emulator"),
                    "machines": machines(domain),
                }
                for domain in arch.findall("domain")
            },
        },
    }
    wordsize = arch.findtext("wordsize")
    if wordsize is not None:
        facts["arch"]["wordsize"] = int(wordsize)
    if arch.find("emulator") is not None:
        facts["arch"]["emulator"] = arch.findtext("emulator")
    features = guest.find("features")
    if features is not None:
        facts["features"] = {feature.tag: _feature(feature) for feature in features}
    return facts


def machines(element: Element) -> dict[str | None, Machine]:
    """Return machine types by canonical name, each with its aliases and maximum CPUs."""
    machine_types: dict[str | None, Machine] = {}
    for node in element.findall("machine"):
        canonical = node.get("canonical")
        machine = machine_types.setdefault(canonical or node.text, {"alternate_names": []})
        if canonical:
            machine["alternate_names"].append(node.text)
        max_cpus = node.get("maxCpus")
        if max_cpus:
            machine["maxcpus"] = int(max_cpus)
    return machine_types


def _feature(feature: Element) -> GuestFeature:
    return {
        "toggle": feature.get("toggle", "no") == "yes",
        "default": feature.get("default", "on") == "on",
    }
