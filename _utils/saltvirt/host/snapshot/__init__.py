"""Snapshots of the guests of one host."""
