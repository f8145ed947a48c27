"""The implementation of the states in ``_states``."""
