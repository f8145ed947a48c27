"""Guests of one group apart from each other, or together (``group_policy: gather``)."""


def score(host, request, policy):
    wanted = set(request.groups)
    mates = sum(1 for guest in host.guests if wanted & set(guest.groups))
    return float(mates if request.group_policy == "gather" else -mates)
