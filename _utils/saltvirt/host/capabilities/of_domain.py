"""libvirt's domain capabilities as plain data.

https://libvirt.org/formatdomaincaps.html
"""


def parse(caps):
    """A dict for a ``<domainCapabilities>`` element: see ``virt.domain_capabilities``."""
    found = {
        "emulator": caps.findtext("path"),
        "domain": caps.findtext("domain"),
        "machine": caps.findtext("machine"),
        "arch": caps.findtext("arch"),
    }
    for child in caps:
        parser = _PARSERS.get(child.tag)
        value = parser(child) if parser else None
        if value is not None:
            found["max_vcpus" if child.tag == "vcpu" else child.tag] = value
    return found


def _enums(element):
    return {e.get("name"): [v.text for v in e.findall("value")] for e in element.findall("enum")}


def _os(element):
    found = {}
    firmware = _enums(element).get("firmware")
    if firmware:
        found["firmware"] = firmware
    loader = element.find("loader")
    if loader is not None and loader.get("supported") == "yes":
        found["loader"] = _enums(loader)
        values = [v.text for v in loader.findall("value")]
        if values:
            found["loader"]["values"] = values
    return found


def _supported(element):
    """Devices or features that this combination has, each with its possible values."""
    return {c.tag: _enums(c) for c in element if c.get("supported") == "yes"} or None


def _cpu(element):
    modes = {m.get("name"): m for m in element.findall("mode") if m.get("supported") == "yes"}
    found = {}
    if "host-passthrough" in modes:
        found["host-passthrough"] = True
    if "host-model" in modes:
        found["host-model"] = _host_model(modes["host-model"])
    if "custom" in modes:
        models = {m.text: m.get("usable") for m in modes["custom"].findall("model")}
        found["custom"] = {"models": models} if models else {}
    return found or None


def _host_model(mode):
    found = {}
    model = mode.find("model")
    if model is not None:
        found["model"] = {"name": model.text}
        for key in ("vendor_id", "fallback"):
            if model.get(key):
                found["model"][key] = model.get(key)
    if mode.findtext("vendor"):
        found["vendor"] = mode.findtext("vendor")
    features = {f.get("name"): f.get("policy") for f in mode.findall("feature")}
    return {**found, "features": features} if features else found


_PARSERS = {
    "vcpu": lambda element: int(element.get("max")) if element.get("max") else None,
    "iothreads": lambda element: element.get("supported") == "yes",
    "os": _os,
    "cpu": _cpu,
    "devices": _supported,
    "features": _supported,
}
