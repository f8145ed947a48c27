"""The host's own network: its bridges and its firewall, without libvirt."""
