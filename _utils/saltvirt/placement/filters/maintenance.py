"""A host that is being drained gets nothing new."""


def reason(host, request, policy):
    return f"in maintenance: {host.maintenance}" if host.maintenance else None
