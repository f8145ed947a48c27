"""The guests' half of libvirt's capabilities as plain data: what can be run here."""


def parse(guest):
    """A dict for a ``<guest>`` element: ``os_type``, ``arch``, ``features``."""
    arch = guest.find("arch")
    found = {
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
    if arch.find("wordsize") is not None:
        found["arch"]["wordsize"] = int(arch.findtext("wordsize"))
    if arch.find("emulator") is not None:
        found["arch"]["emulator"] = arch.findtext("emulator")
    if guest.find("features") is not None:
        found["features"] = {f.tag: _feature(f) for f in guest.find("features")}
    return found


def machines(element):
    """Machine types by canonical name, each with its other names and CPU limit."""
    found = {}
    for node in element.findall("machine"):
        canonical = node.get("canonical")
        machine = found.setdefault(canonical or node.text, {"alternate_names": []})
        if canonical:
            machine["alternate_names"].append(node.text)
        if node.get("maxCpus"):
            machine["maxcpus"] = int(node.get("maxCpus"))
    return found


def _feature(feature):
    return {
        "toggle": feature.get("toggle", "no") == "yes",
        "default": feature.get("default", "on") == "on",
    }
