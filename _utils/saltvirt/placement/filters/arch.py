"""The guest's architecture, where one was asked for."""


def reason(host, request, policy):
    if request.arch and host.arch != request.arch:
        return f"is {host.arch or 'of unknown architecture'}, not {request.arch}"
    return None
