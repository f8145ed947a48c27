"""Which host gets a guest. Facts in, a ranking and reasons out; nothing is asked."""
