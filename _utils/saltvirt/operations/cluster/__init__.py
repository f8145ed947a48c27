"""What the hosts have and can take."""
