"""The metrics as values, independent of their source and output format."""
