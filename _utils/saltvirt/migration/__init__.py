"""The decisions of a migration: pure functions of reported facts."""
