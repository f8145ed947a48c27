"""Locks, slots and records on the master."""
