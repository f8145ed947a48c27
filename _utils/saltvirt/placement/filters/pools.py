"""Every storage pool that the guest uses must be there."""


def reason(host, request, policy):
    missing = sorted(request.pools - host.pools)
    return f"has no storage pool {', '.join(missing)}" if missing else None
