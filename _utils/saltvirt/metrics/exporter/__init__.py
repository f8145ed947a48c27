"""Render and serve metrics."""
