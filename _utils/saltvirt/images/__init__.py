"""Disk images: inspect them, cache them on this host, and clone them to disks."""
