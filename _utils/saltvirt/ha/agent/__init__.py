"""High availability: the agent, a service on each hypervisor.

It needs the distribution's Python and its libvirt binding, but neither Salt nor the minion, which
may be stopped, updated or broken. The pure package ``ha.model`` decides what it does; this package
does it: ``service`` runs it, ``store`` saves its state, ``watchdog`` feeds the device,
``pool_heartbeat`` writes heartbeats to shared pools, ``guests`` controls libvirt.
"""
