"""The snapshots of a guest as a tree, and the rules for taking, reverting to and deleting them."""
