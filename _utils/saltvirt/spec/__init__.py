"""What a user asked for: dataclasses, with every value checked."""
