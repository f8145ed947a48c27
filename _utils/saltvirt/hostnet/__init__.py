"""The host's own network, without libvirt: its bridge and its firewall."""
