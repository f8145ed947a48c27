"""What the library uses of libvirt-python's own module for QEMU."""

import libvirt

def qemuAgentCommand(domain: libvirt.virDomain, cmd: str, timeout: int, flags: int) -> str: ...
