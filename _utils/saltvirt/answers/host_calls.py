"""The calls about a host itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from saltvirt.answers.calls import Call, Timeout
from saltvirt.answers.certificates import CertificateInfo, CertificateUpdate
from saltvirt.answers.guest_calls import HostRequest
from saltvirt.answers.maintenance import MaintenanceMark
from saltvirt.answers.removal import VolumeRemoval
from saltvirt.answers.versions import Versions
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class MaintenanceRequest(Message):
    """Set, clear or read the maintenance mark of a host. reason: set the mark. guests: names of
    guests that were moved away. off: clear the mark."""

    reason: str | None = optional(None)
    guests: tuple[str, ...] | None = optional(None)
    off: bool = optional(False)


@dataclass(frozen=True)
class VolumeRequest(Message):
    """Delete a volume that is not used. unused: paths on shared storage that no other host uses.
    test: report what would be deleted."""

    pool: str
    volume: str
    unused: tuple[str, ...] = ()
    test: bool = False


MAINTENANCE: Call[MaintenanceRequest, MaintenanceMark | None] = Call(
    "maintenance", MaintenanceRequest, cast(Any, MaintenanceMark | None)
)
REMOVE_VOLUME = Call("remove_volume", VolumeRequest, VolumeRemoval)
VERSIONS = Call("versions", HostRequest, Versions, Timeout.SHORT)
CERTIFICATES = Call("tls_info", HostRequest, CertificateInfo, Timeout.SHORT)
UPDATE_CERTIFICATES = Call("tls_update", HostRequest, CertificateUpdate, Timeout.SHORT)
