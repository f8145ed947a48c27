"""Backups: what the master does of them; backups.md. Nothing but its adapters imports it."""
