"""The operator named a host: no other is a candidate."""


def reason(host, request, policy):
    if request.only and host.name != request.only:
        return f"the guest is wanted on {request.only}"
    return None
