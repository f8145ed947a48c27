"""The part of Salt that has types here; the rest of it has none."""
