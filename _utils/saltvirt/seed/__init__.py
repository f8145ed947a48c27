"""Prepare a guest's disk: set its name, its keys and its minion."""

from saltvirt.seed.backends import apply, prove_free
from saltvirt.seed.data import SeedData

__all__ = ["SeedData", "apply", "prove_free"]
