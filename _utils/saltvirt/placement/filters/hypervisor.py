"""The host's libvirt must run guests of the type.

Salt's users write ``kvm`` for anything that QEMU runs: a host without KVM runs it too, slower.
"""

QEMU = {"kvm", "qemu"}


def reason(host, request, policy):
    wanted = request.hypervisor
    if wanted in host.types or (wanted in QEMU and QEMU.intersection(host.types)):
        return None
    return f"runs {', '.join(host.types) or 'nothing'}, not {wanted}"
