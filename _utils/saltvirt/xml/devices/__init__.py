"""Elements of `<devices>`."""
