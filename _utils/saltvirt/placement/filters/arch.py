"""The guest's architecture, where one was asked for."""


def reason(host, request, policy):
    runs = host.arches or (host.arch,)
    if request.arch and request.arch not in runs:
        return f"runs {', '.join(runs) or 'no known architecture'}, not {request.arch}"
    return None
