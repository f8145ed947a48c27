"""High availability: the agent, a service of its own on each hypervisor.

It needs the distribution's Python and libvirt's binding for it, and neither Salt nor the minion:
both may be stopped, updated or broken meanwhile. What it does is decided by
``saltvirt.ha.model.agent``, which is pure; here is what touches the world:
``service`` runs it, ``store`` keeps what must not be forgotten,
``watchdog`` feeds the device, ``pools`` writes beats beside the disks, ``guests`` asks libvirt.
"""
