"""Disk images: what they are, this host's cache of them, and clones made from them."""
