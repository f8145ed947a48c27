"""Creation and modification of guests on one host: init, clone, rename, update."""
