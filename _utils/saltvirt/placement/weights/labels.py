"""The fraction of the preferred labels that the host has."""


def score(host, request, policy):
    if not request.prefer:
        return 0.0
    held = sum(1 for key, value in request.prefer.items() if host.labels.get(key) == value)
    return held / len(request.prefer)
