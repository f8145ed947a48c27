"""Answer about the versions of a host."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.schema import Message


@dataclass(frozen=True)
class Versions(Message):
    """Answer of `virt.versions`. salt_virt: the version. install_method: sync or pip. digest: of
    the library's files, in hexadecimal digits. path: the folder that it is imported from. libvirt:
    version of the library; None without the binding."""

    salt_virt: str
    install_method: str
    digest: str
    path: str
    salt: str
    python: str
    libvirt: str | None
