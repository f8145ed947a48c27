"""Consoles, files and commands of guests."""
