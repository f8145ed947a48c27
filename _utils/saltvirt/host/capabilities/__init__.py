"""What libvirt and the hypervisors of one host can do."""
