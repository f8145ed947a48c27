"""Differences between an actual and a desired definition."""
