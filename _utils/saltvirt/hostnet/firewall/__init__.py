"""Open and close the ports of a hypervisor with each firewall."""
