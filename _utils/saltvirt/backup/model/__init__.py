"""Backups: what a record of one says, which disk is read whole, what is kept; docs/backups.md.

Pure: what was seen in, a decision with its reasons out. ``record`` is what is written beside the
disks, ``pieces`` the digests of what was read of a disk, ``chains`` says for each disk whether an
increment can be had, ``retention`` which backups stay. The files are ``backuphost``'s.
"""
