"""The decisions of a migration. Facts come in, answers go out, nothing is touched."""
