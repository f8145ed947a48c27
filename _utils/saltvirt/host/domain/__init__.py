"""Look up, start, stop, describe and remove the domains of a host."""
