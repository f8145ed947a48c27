"""The ports of a hypervisor, in the words of each firewall."""
