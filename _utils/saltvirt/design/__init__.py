"""Policy: build libvirt's XML for a given host from the user's arguments."""
