"""Backup model: records, increment planning, retention. See docs/how-to/backups.md.

Pure code without libvirt or Salt. ``record`` describes the metadata stored with a backup,
``checksum_blocks`` the digests of the data that was read, ``chains`` decides for each disk whether
an increment is possible, and ``retention`` which backups to keep. ``backup.target`` reads and
writes the files.
"""
