"""What a host answers when it is asked what it runs."""

from __future__ import annotations

from dataclasses import dataclass

from saltvirt.schema import Message


@dataclass(frozen=True)
class Versions(Message):
    """What `virt.versions` answers. salt_virt: the version. way: sync or pip. digest: of the
    library's files, in hexadecimal digits. path: the folder that it is imported from. libvirt: of
    the library beside the binding; None without a binding."""

    salt_virt: str
    way: str
    digest: str
    path: str
    salt: str
    python: str
    libvirt: str | None
