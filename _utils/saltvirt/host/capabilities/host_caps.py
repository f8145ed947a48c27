"""The host section of libvirt's capabilities as plain data.

https://libvirt.org/formatcaps.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element

# a key in the result of parse, and its value
Parsed = tuple[str, Any]


def text(element: Element, path: str) -> str | None:
    """Return the text of a child, or None if it is missing or empty."""
    return element.findtext(path) or None


def sized(element: Element) -> str:
    """Return a text such as ``4 KiB`` for an element with size and unit."""
    return f"{element.get('size')} {element.get('unit', 'KiB')}"


def parse(host: Element) -> dict[str, Any]:
    """Return a dict for a ``<host>`` element, without keys for missing elements."""
    facts: dict[str, Any] = {}
    for tag, parser in _PARSERS.items():
        element = host.find(tag)
        if element is not None:
            key, value = parser(element)
            facts[key] = value
    facts["security"] = [_security(element) for element in host.findall("secmodel")]
    return facts


def _cpu(cpu: Element) -> Parsed:
    facts: dict[str, Any] = {key: text(cpu, key) for key in ("arch", "model", "vendor")}
    facts["features"] = [f.get("name") for f in cpu.findall("feature")]
    facts["pages"] = [{"size": sized(p)} for p in cpu.findall("pages")]
    microcode, topology = cpu.find("microcode"), cpu.find("topology")
    if microcode is not None:
        facts["microcode"] = microcode.get("version")
    if topology is not None:
        facts.update({key: int(value) for key, value in topology.attrib.items()})
    return "cpu", facts


def _migration(element: Element) -> Parsed:
    transports = element.findall("uri_transports/uri_transport")
    return "migration", {
        "live": element.find("live") is not None,
        "transports": [t.text for t in transports],
    }


def _cell(cell: Element) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": int(cell.attrib["id"])}
    memory = cell.find("memory")
    if memory is not None:
        facts["memory"] = f"{memory.text} {memory.get('unit', 'KiB')}"
    lists: dict[str, Any] = {
        "pages": [
            {"size": sized(p), "available": int(p.text or "")} for p in cell.findall("pages")
        ],
        "distances": {
            int(s.attrib["id"]): int(s.attrib["value"]) for s in cell.findall("distances/sibling")
        },
        "cpus": [_cell_cpu(c) for c in cell.findall("cpus/cpu")],
    }
    facts.update({key: value for key, value in lists.items() if value})
    return facts


def _cell_cpu(cpu: Element) -> dict[str, str | int]:
    return {
        key: value if key == "siblings" else int(value)
        for key, value in cpu.attrib.items()
        if value and key in ("id", "socket_id", "die_id", "core_id", "siblings")
    }


def _bank(bank: Element) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": int(bank.attrib["id"]),
        "level": int(bank.attrib["level"]),
        "type": bank.get("type"),
        "size": sized(bank),
        "cpus": bank.get("cpus"),
    }
    controls = [_control(c) for c in bank.findall("control")]
    return {**facts, "controls": controls} if controls else facts


def _control(control: Element) -> dict[str, str | int | None]:
    unit = control.get("unit")
    facts: dict[str, str | int | None] = {
        "granularity": f"{control.get('granularity')} {unit}",
        "type": control.get("type"),
        "maxAllocs": int(control.attrib["maxAllocs"]),
    }
    if control.get("min"):
        facts["min"] = f"{control.get('min')} {unit}"
    return facts


def _security(model: Element) -> dict[str, Any]:
    return {
        "model": text(model, "model"),
        "doi": text(model, "doi"),
        "baselabels": [
            {"type": label.get("type"), "label": label.text} for label in model.findall("baselabel")
        ],
    }


_PARSERS: dict[str, Callable[[Element], Parsed]] = {
    "uuid": lambda element: ("uuid", element.text),
    "cpu": _cpu,
    "power_management": lambda element: ("power_management", [child.tag for child in element]),
    "migration_features": _migration,
    "topology": lambda element: (
        "topology",
        {"cells": [_cell(c) for c in element.findall("cells/cell")]},
    ),
    "cache": lambda element: ("cache", {"banks": [_bank(b) for b in element.findall("bank")]}),
}
