"""The metrics of a hypervisor."""
