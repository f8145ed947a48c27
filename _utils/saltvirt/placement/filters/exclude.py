"""Hosts that the operator took out of placement (``virt:exclude``)."""


def reason(host, request, policy):
    return "excluded by virt:exclude" if host.name in policy.exclude else None
