"""Snapshots of a guest of one host."""
