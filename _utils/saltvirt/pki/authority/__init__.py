"""The master's certificate authorities and the certificates that they issue."""
