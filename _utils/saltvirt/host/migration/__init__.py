"""A guest of this host moves to another one: checked, moved, confirmed, recovered."""
