"""An operating system, and the devices for which it has drivers."""

from __future__ import annotations

from dataclasses import dataclass

WINDOWS = "windows"


@dataclass(frozen=True)
class GuestOs:
    """An operating system. id: libosinfo's, None for a family. virtio_disk, virtio_nic: whether its
    installer has drivers for virtio. pcie: for AHCI and e1000e. secure: whether it requires UEFI,
    secure boot and a TPM."""

    name: str
    family: str
    id: str | None = None
    virtio_disk: bool = True
    virtio_nic: bool = True
    pcie: bool = False
    secure: bool = False
