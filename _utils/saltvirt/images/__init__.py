"""Floor 1: disk images: what they are, this host's cache of them, and clones made from them."""
