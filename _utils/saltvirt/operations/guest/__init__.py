"""Power, removal and snapshots of a guest."""
