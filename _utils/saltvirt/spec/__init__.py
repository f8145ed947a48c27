"""Dataclasses for the arguments of users, with every value checked."""
