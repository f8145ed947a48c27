"""Backups of guests."""
