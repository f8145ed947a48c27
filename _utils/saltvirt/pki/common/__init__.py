"""On both sides: keys and certificates as values, files, sealed keys."""
