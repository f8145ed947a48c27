"""Control who may do what."""
