"""What a minion asks of its master: secrets, certificates, pieces of files."""
