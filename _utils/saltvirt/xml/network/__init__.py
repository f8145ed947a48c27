"""Elements of `<network>`."""
