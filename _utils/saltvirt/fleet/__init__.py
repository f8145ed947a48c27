"""The master's side of the cloud: which hosts there are, and asking them."""
