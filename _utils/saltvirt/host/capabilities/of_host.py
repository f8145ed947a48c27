"""The host's half of libvirt's capabilities as plain data.

https://libvirt.org/formatcaps.html
"""


def text(element, path):
    """The text of a child, None when it or its text is not there."""
    return element.findtext(path) or None


def sized(element):
    """``4 KiB`` of an element with the attributes size and unit."""
    return f"{element.get('size')} {element.get('unit', 'KiB')}"


def parse(host):
    """A dict for a ``<host>`` element; what the element lacks, the dict lacks."""
    found = {}
    for tag, parser in _PARSERS.items():
        element = host.find(tag)
        if element is not None:
            key, value = parser(element)
            found[key] = value
    found["security"] = [_security(element) for element in host.findall("secmodel")]
    return found


def _cpu(cpu):
    found = {key: text(cpu, key) for key in ("arch", "model", "vendor")}
    found["features"] = [f.get("name") for f in cpu.findall("feature")]
    found["pages"] = [{"size": sized(p)} for p in cpu.findall("pages")]
    if cpu.find("microcode") is not None:
        found["microcode"] = cpu.find("microcode").get("version")
    if cpu.find("topology") is not None:
        found.update({key: int(value) for key, value in cpu.find("topology").attrib.items()})
    return "cpu", found


def _migration(element):
    transports = element.findall("uri_transports/uri_transport")
    return "migration", {
        "live": element.find("live") is not None,
        "transports": [t.text for t in transports],
    }


def _cell(cell):
    found = {"id": int(cell.get("id"))}
    memory = cell.find("memory")
    if memory is not None:
        found["memory"] = f"{memory.text} {memory.get('unit', 'KiB')}"
    lists = {
        "pages": [{"size": sized(p), "available": int(p.text)} for p in cell.findall("pages")],
        "distances": {
            int(s.get("id")): int(s.get("value")) for s in cell.findall("distances/sibling")
        },
        "cpus": [_cell_cpu(c) for c in cell.findall("cpus/cpu")],
    }
    found.update({key: value for key, value in lists.items() if value})
    return found


def _cell_cpu(cpu):
    return {
        key: value if key == "siblings" else int(value)
        for key, value in cpu.attrib.items()
        if value and key in ("id", "socket_id", "die_id", "core_id", "siblings")
    }


def _bank(bank):
    found = {
        "id": int(bank.get("id")),
        "level": int(bank.get("level")),
        "type": bank.get("type"),
        "size": sized(bank),
        "cpus": bank.get("cpus"),
    }
    controls = [_control(c) for c in bank.findall("control")]
    return {**found, "controls": controls} if controls else found


def _control(control):
    unit = control.get("unit")
    found = {
        "granularity": f"{control.get('granularity')} {unit}",
        "type": control.get("type"),
        "maxAllocs": int(control.get("maxAllocs")),
    }
    if control.get("min"):
        found["min"] = f"{control.get('min')} {unit}"
    return found


def _security(model):
    return {
        "model": text(model, "model"),
        "doi": text(model, "doi"),
        "baselabels": [
            {"type": label.get("type"), "label": label.text} for label in model.findall("baselabel")
        ],
    }


_PARSERS = {
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
