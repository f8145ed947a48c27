"""The target host's side of backups. See docs/how-to/backups.md.

``safe_folder`` is the only module that accesses files below the target's folder. ``target`` manages
the backups of each guest in it: it creates, lists, locks and removes them. The decisions are made
by ``backups``.
"""
