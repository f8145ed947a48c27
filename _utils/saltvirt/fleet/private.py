"""Files of the master that only root, or the user of the master, can read."""

from __future__ import annotations

import os

from saltvirt.system import atomic_file


def write(path: str, text: str) -> None:
    """Write the file atomically. Creates its folder."""
    _make_folder(path)
    atomic_file.write(path, text.encode(), part=atomic_file.unique_part(path))


def write_locked(path: str, text: str) -> int:
    """Write the file atomically. Return it open, and locked since before it was renamed."""
    _make_folder(path)
    return atomic_file.write_locked(path, text.encode())


def _make_folder(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
