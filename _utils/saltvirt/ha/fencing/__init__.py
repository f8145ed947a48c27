"""High availability: ClusterLabs' fence agents, run by the master or by a hypervisor that reaches
the management network."""
