"""libvirt's domain capabilities as plain data.

https://libvirt.org/formatdomaincaps.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element

# {name of an <enum>: its values}
Enums = dict[str | None, list[str | None]]


def parse(caps: Element) -> dict[str, Any]:
    """Return a dict for a ``<domainCapabilities>`` element; see ``virt.domain_capabilities``."""
    facts: dict[str, Any] = {
        "emulator": caps.findtext("path"),
        "domain": caps.findtext("domain"),
        "machine": caps.findtext("machine"),
        "arch": caps.findtext("arch"),
    }
    for child in caps:
        parser = _PARSERS.get(child.tag)
        value = parser(child) if parser else None
        if value is not None:
            facts["max_vcpus" if child.tag == "vcpu" else child.tag] = value
    return facts


def _enums(element: Element) -> Enums:
    return {e.get("name"): [v.text for v in e.findall("value")] for e in element.findall("enum")}


def _os(element: Element) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    firmware = _enums(element).get("firmware")
    if firmware:
        facts["firmware"] = firmware
    loader = element.find("loader")
    if loader is not None and loader.get("supported") == "yes":
        facts["loader"] = _enums(loader)
        values = [v.text for v in loader.findall("value")]
        if values:
            facts["loader"]["values"] = values
    return facts


def _supported(element: Element) -> dict[str, Enums] | None:
    """Return the supported devices or features, each with its possible values."""
    return {c.tag: _enums(c) for c in element if c.get("supported") == "yes"} or None


def _cpu(element: Element) -> dict[str, Any] | None:
    modes = {m.get("name"): m for m in element.findall("mode") if m.get("supported") == "yes"}
    facts: dict[str, Any] = {}
    if "host-passthrough" in modes:
        facts["host-passthrough"] = True
    if "host-model" in modes:
        facts["host-model"] = _host_model(modes["host-model"])
    if "custom" in modes:
        models = {m.text: m.get("usable") for m in modes["custom"].findall("model")}
        facts["custom"] = {"models": models} if models else {}
    return facts or None


def _host_model(mode: Element) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    model = mode.find("model")
    if model is not None:
        facts["model"] = {"name": model.text}
        for key in ("vendor_id", "fallback"):
            if model.get(key):
                facts["model"][key] = model.get(key)
    if mode.findtext("vendor"):
        facts["vendor"] = mode.findtext("vendor")
    features = {f.get("name"): f.get("policy") for f in mode.findall("feature")}
    return {**facts, "features": features} if features else facts


_PARSERS: dict[str, Callable[[Element], Any]] = {
    "vcpu": lambda element: int(max_vcpus) if (max_vcpus := element.get("max")) else None,
    "iothreads": lambda element: element.get("supported") == "yes",
    "os": _os,
    "cpu": _cpu,
    "devices": _supported,
    "features": _supported,
}
