"""The hypervisor's side of backups. See docs/how-to/backups.md.

A hypervisor exports the disks of a guest, as they are at one moment, to the target host. Only the
target host reads them; a hypervisor never writes to a target.
"""
