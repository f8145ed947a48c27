"""Definitions of other projects, read, edited, written and defined: ``make corpus``."""
