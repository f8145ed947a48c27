"""Create a bridge on top of the host's interface with each network manager."""
