"""What stands in for parts of the library in tests."""
