"""What the host itself said against the guest: a profile that it does not know, a file in the
way, a device that its libvirt lacks."""


def reason(host, request, policy):
    return host.needs.problem if request.by_profile and host.needs else None
