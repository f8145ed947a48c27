"""Backups: what the machine that has a target does there; docs/backups.md.

``folder`` is all that touches files, below the target's one folder. ``target`` has the backups of
each guest in it: made whole or not at all, listed, held while they are read, removed. What is
decided is ``backups``'.
"""
