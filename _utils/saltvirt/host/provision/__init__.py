"""Guests made and changed on one host: init, clone, rename, update."""
