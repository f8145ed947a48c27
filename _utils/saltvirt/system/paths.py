"""The folders of Salt Virt's own files on a hypervisor."""

STATE = "/var/lib/salt-virt"  # data that survives a restart of the host
RUN = "/run/salt-virt"  # in memory, writable by root only: locks on the host's devices
LOCKS = "/run/salt-virt-locks"  # locks of operations on guests
