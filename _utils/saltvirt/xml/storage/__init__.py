"""Pools, volumes and secrets."""
