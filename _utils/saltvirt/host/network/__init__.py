"""libvirt networks and the network devices of one host."""
