"""Domains of one host: found, started and stopped, described, taken away."""
