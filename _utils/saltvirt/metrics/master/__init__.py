"""The metrics of a master: what no single host knows."""
