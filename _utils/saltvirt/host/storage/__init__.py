"""Pools, volumes and files of one host, and who needs them."""
