"""Power states, removal and snapshots of guests."""
