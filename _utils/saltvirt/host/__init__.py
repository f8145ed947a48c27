"""What one host's libvirt has and does."""
