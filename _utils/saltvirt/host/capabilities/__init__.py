"""Capabilities of libvirt and the hypervisors of one host."""
