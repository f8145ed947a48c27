"""The hypervisor's side of a connection to a guest's display, serial port or agent."""
