"""The shape of an operation, its result and its report."""
