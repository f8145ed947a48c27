"""What differs between a definition that is and one that is wanted."""
