"""The version of Salt Virt in this process, and how it was installed."""

from __future__ import annotations

import hashlib
import os
import platform

import salt.version

import saltvirt
from saltvirt.answers.versions import Versions

SYNCED, PIP = "sync", "pip"


def folder() -> str:
    """The folder of the imported package."""
    return next(iter(saltvirt.__path__))


def install_method() -> str:
    """``pip`` or ``sync``."""
    return PIP if os.path.join("salt_virt", "library") in folder() else SYNCED


def digest() -> str:
    """The digest of the library's files, independent of how it was installed: 12 hexadecimal
    digits."""
    hasher, home = hashlib.sha256(), folder()
    for directory, inner, names in os.walk(home):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    content = file.read()
                hasher.update(f"{os.path.relpath(path, home)}:{len(content)}:".encode() + content)
    return hasher.hexdigest()[:12]


def versions(libvirt: str | None = None) -> Versions:
    """The versions on this machine. libvirt: version of its library."""
    return Versions(
        salt_virt=saltvirt.__version__,
        install_method=install_method(),
        digest=digest(),
        path=folder(),
        salt=salt.version.__version__,
        python=platform.python_version(),
        libvirt=libvirt,
    )
