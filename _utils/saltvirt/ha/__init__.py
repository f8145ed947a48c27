"""High availability."""
