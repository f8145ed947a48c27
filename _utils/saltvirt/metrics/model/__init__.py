"""Metrics as values: which there are, what they are called, and what they are made of."""
