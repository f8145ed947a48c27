"""Bridges and networks that the guest is plugged into."""


def reasons(guest, host, request):
    seen = set()
    for nic in guest["nics"]:
        where = (nic["type"], nic["source"])
        if where not in seen:
            seen.add(where)
            yield from _plug(*where, host)


def _plug(kind, source, host):
    if kind == "bridge" and host["bridges"] is not None and source not in host["bridges"]:
        yield f"{host['hostname']} has no bridge {source}"
    if kind == "network" and source not in host["networks"]:
        yield f"{host['hostname']} has no network {source}"
    elif kind == "network" and not host["networks"][source]:
        yield f"the network {source} on {host['hostname']} is not started"
    if kind == "direct" and host["links"] is not None and source not in host["links"]:
        yield f"{host['hostname']} has no network interface {source}"
