"""Requests of a minion to its master: secrets, certificates, chunks of files."""
