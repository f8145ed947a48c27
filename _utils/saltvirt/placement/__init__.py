"""Select a host for a guest: facts in, a ranking and reasons out, without any query."""
