"""Create guests."""
