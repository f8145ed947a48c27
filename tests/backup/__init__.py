"""Random steps for backups: README.md."""
