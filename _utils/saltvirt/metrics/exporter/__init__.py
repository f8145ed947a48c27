"""Metrics written down, and served."""
