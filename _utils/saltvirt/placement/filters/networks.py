"""Every libvirt network that the guest uses must be there."""


def reason(host, request, policy):
    missing = sorted(request.networks - host.networks)
    return f"has no libvirt network {', '.join(missing)}" if missing else None
