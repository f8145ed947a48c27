"""Labels that the guest requires of its host."""


def reason(host, request, policy):
    for key, value in sorted(request.labels.items()):
        if host.labels.get(key) != value:
            return f"label {key} is {host.labels.get(key)!r}, not {value!r}"
    return None
