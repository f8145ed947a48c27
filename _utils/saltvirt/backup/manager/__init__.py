"""Backups: what the master does of them; docs/backups.md. Nothing but its adapters imports it."""
