"""What states decide and say; the states themselves are in ``_states``."""
