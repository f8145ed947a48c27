"""On a hypervisor: certificates asked for, put in place and shown."""
