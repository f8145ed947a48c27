"""The metrics of the master: what no single host knows."""
