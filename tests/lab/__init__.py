"""A cloud on one machine: see README.md in this folder."""
