"""The CPU model that the guest names must be one that the host can give."""


def reason(host, request, policy):
    known = host.needs.cpu_models if host.needs else None
    if request.cpu_model and known is not None and request.cpu_model not in known:
        return f"cannot give the CPU model {request.cpu_model}"
    return None
