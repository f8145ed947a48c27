"""Which Salt Virt a process runs, and by which way it came here."""

from __future__ import annotations

import hashlib
import os
import platform

import salt.version

import saltvirt
from saltvirt.answers.versions import Versions

SYNCED, PIP = "sync", "pip"


def folder() -> str:
    """The folder of the package that is imported."""
    return next(iter(saltvirt.__path__))


def way() -> str:
    """``pip`` or ``sync``."""
    return PIP if os.path.join("salt_virt", "library") in folder() else SYNCED


def digest() -> str:
    """Of the library's files, the same for the same files by whichever way they came: 12
    hexadecimal digits."""
    found, home = hashlib.sha256(), folder()
    for place, inner, names in os.walk(home):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(place, name)
                with open(path, "rb") as file:
                    content = file.read()
                found.update(f"{os.path.relpath(path, home)}:{len(content)}:".encode() + content)
    return found.hexdigest()[:12]


def versions(libvirt: str | None = None) -> Versions:
    """What is used here. libvirt: the version of its library."""
    return Versions(
        salt_virt=saltvirt.__version__,
        way=way(),
        digest=digest(),
        path=folder(),
        salt=salt.version.__version__,
        python=platform.python_version(),
        libvirt=libvirt,
    )
