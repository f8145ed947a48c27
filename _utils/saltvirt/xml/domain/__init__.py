"""Elements of `<domain>`."""
