"""Prepares a guest's disk: its name, its keys, its minion."""

from saltvirt.seed.backends import apply, prove_free
from saltvirt.seed.data import SeedData

__all__ = ["SeedData", "apply", "prove_free"]
