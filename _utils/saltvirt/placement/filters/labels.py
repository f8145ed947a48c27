"""Labels that the guest requires of its host."""


def reason(host, request, policy):
    for key, value in sorted(request.labels.items()):
        if key not in host.labels:
            return f"has no label {key}, {value!r} is wanted"
        if host.labels[key] != value:
            return f"label {key} is {host.labels[key]!r}, not {value!r}"
    return None
