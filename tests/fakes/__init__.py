"""Replacements for parts of the library in tests."""
