"""The folders of Salt Virt's own files on a hypervisor."""

STATE = "/var/lib/salt-virt"  # what a restart of the host must not lose
RUN = "/run/salt-virt"  # in memory, and nobody else can write to /run: locks on the host's devices
LOCKS = "/run/salt-virt-locks"  # who is at work on which guest
