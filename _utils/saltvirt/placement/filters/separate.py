"""Guests of a group that must not share a host (``group_policy: separate``)."""


def reason(host, request, policy):
    if request.group_policy != "separate":
        return None
    for guest in host.guests:
        shared = set(guest.groups) & set(request.groups)
        if shared:
            return f"already has {guest.name} of group {', '.join(sorted(shared))}"
    return None
