"""Storage pools, volumes and files of one host, and their users."""
