"""The builds of the cache. A file in here is part of its recipe: a change builds anew."""
