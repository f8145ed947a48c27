"""Every bridge that the guest uses must be there."""


def reason(host, request, policy):
    missing = sorted(request.bridges - host.bridges)
    return f"has no bridge {', '.join(missing)}" if missing else None
