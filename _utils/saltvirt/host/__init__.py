"""Floor 1: what one host's libvirt has and does."""
