"""Backups: what a hypervisor does for them; docs/backups.md.

It shows a guest's disks, as they are at one moment, to the machine that has the target, and that
alone reads them: nothing is written to a target from here.
"""
