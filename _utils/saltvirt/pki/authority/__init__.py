"""On the master: the certificate authorities, and whom they sign for."""
