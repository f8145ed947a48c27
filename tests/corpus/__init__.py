"""Definitions that others made, read, edited, written and defined: `make corpus`."""
