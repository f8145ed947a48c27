"""The images that this master serves as ``salt://`` from its own folders.

Other file servers, such as gitfs, are not read: they may have to fetch first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.schema import Message

SUFFIXES = (".qcow2", ".raw", ".img", ".iso", ".vmdk", ".vdi", ".vhdx")
# the maximum number of files and folders that are read
MAX_ENTRIES = 20_000


@dataclass(frozen=True)
class ServedImage(Message):
    """source: its address. size_bytes: of the file."""

    source: str
    size_bytes: int


def listed(opts: Mapping[str, Any]) -> list[ServedImage]:
    """Return the images below ``file_roots``, sorted. The first root that has a path counts."""
    served: dict[str, ServedImage] = {}
    roots = opts.get("file_roots") or {}
    for saltenv, folders in roots.items() if isinstance(roots, dict) else ():
        suffix = "" if saltenv == "base" else f"?saltenv={saltenv}"
        for folder in folders if isinstance(folders, list) else ():
            for path, size_bytes in _files(str(folder)):
                source = f"salt://{path}{suffix}"
                served.setdefault(source, ServedImage(source, size_bytes))
    return [served[source] for source in sorted(served)]


def _files(folder: str) -> Iterator[tuple[str, int]]:
    """Yield (path below the folder, size) of images. Links to folders are not followed."""
    remaining = MAX_ENTRIES
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        remaining -= len(folders) + len(files)
        if remaining < 0:
            return
        for name in files:
            path = os.path.join(parent, name)
            if name.endswith(SUFFIXES) and os.path.isfile(path) and _is_text(path):
                with contextlib.suppress(OSError):  # removed since
                    yield os.path.relpath(path, folder), os.path.getsize(path)


def _is_text(path: str) -> bool:
    """Return whether the path can be part of an answer: not if its bytes are no UTF-8."""
    with contextlib.suppress(UnicodeEncodeError):
        return bool(path.encode())
    return False
