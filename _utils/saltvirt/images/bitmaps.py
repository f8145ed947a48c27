"""Dirty bitmaps in a qcow2 file that no other process has open."""

from __future__ import annotations

import json
from typing import Any

from saltvirt.images import chain, confined

_TIMEOUT_S = 60
QCOW2 = "qcow2"
_OLD = b"QFI\xfb\0\0\0\x02"  # its sign, and its version


def read(path: str) -> dict[str, list[str]]:
    """Name to flags (``auto``: it records, ``in-use``: QEMU has it open, or died while it did). The
    file may be in use. Raises OperationFailed."""
    argv = ["qemu-img", "info", "-U", "--output=json", "-f", QCOW2, path]
    reads, limits = chain.names(path, QCOW2), confined.Limits(_TIMEOUT_S)
    out = confined.run(argv, f"inspect {path}", reads=reads, limits=limits)
    data: dict[str, Any] = json.loads(out).get("format-specific", {}).get("data", {})
    return {bitmap["name"]: bitmap["flags"] for bitmap in data.get("bitmaps", ())}


def is_old(path: str) -> bool:
    """Whether a qcow2 file has version 2, which cannot store bitmaps. False if it cannot be read;
    adding a bitmap then reports the error."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_OLD)) == _OLD
    except OSError:
        return False


def add(path: str, name: str) -> None:
    """Add a recording bitmap. Raises OperationFailed."""
    _change("--add", path, name)


def remove(path: str, name: str) -> None:
    """Remove a bitmap. Raises OperationFailed."""
    _change("--remove", path, name)


def _change(action: str, path: str, name: str) -> None:
    argv = ["qemu-img", "bitmap", action, "-f", QCOW2, path, name]
    limits = confined.Limits(_TIMEOUT_S)
    confined.run(argv, f"change bitmaps of {path}", writes=[path], limits=limits)
