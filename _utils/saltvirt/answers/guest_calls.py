"""The calls about the guests of a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from saltvirt.answers.calls import Call, Timeout
from saltvirt.answers.guests import HostInfo, Leftovers
from saltvirt.answers.removal import RemovalPlan
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class HostRequest(Message):
    """A request without arguments."""


@dataclass(frozen=True)
class NamedGuestRequest(Message):
    """vm_: name of the guest."""

    vm_: str


@dataclass(frozen=True)
class GuestsRequest(Message):
    """vm_: name of the only guest to report; None: all guests."""

    vm_: str | None = optional(None)


@dataclass(frozen=True)
class AutostartRequest(Message):
    """Set the autostart of a guest. state: ``on`` or ``off``."""

    vm_: str
    state: str = "on"


@dataclass(frozen=True)
class PurgeRequest(Message):
    """Remove a guest and its own disks.

    unused: paths on shared storage that no other host uses. options: further arguments of
    ``virt.purge``, such as ``force``.
    """

    UNDECLARED: ClassVar[str] = "options"

    vm_: str
    unused: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PurgePlanRequest(Message):
    """Report what a removal would delete. options: as for PurgeRequest."""

    UNDECLARED: ClassVar[str] = "options"

    vm_: str
    options: dict[str, Any] = field(default_factory=dict)
    test: bool = True


@dataclass(frozen=True)
class OrphanRequest(Message):
    """Remove the disks that an interrupted operation created for a guest. See PurgeRequest."""

    vm_: str
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class EjectRequest(Message):
    """Remove the seed volume of a guest. last_seen: only if the host alone can confirm that it has
    the guest."""

    name: str
    last_seen: bool = optional(False)


@dataclass(frozen=True)
class StorageUsersRequest(Message):
    """Report which files on shared storage the host uses. places: path to its FileIdentity, as
    another host reported it."""

    places: dict[str, Any]


@dataclass(frozen=True)
class ImageRequest(Message):
    """Fetch an image into the cache of the host. source: its address. cdrom: it is for a CD drive.
    test: fetch nothing."""

    source: str
    cdrom: bool = optional(False)
    test: bool = optional(False)


@dataclass(frozen=True)
class FetchedImage(Message):
    """Answer of ``virt.image_fetch``. path: of the image; None: it would be fetched."""

    path: str | None = None


LIST_STATES = Call("vm_state", GuestsRequest, dict[str, str], Timeout.SHORT)
SHOW_HOST = Call("full_info", HostRequest, HostInfo, Timeout.SHORT)
LIST_DISKS = Call("get_disks", NamedGuestRequest, dict[str, dict[str, Any]], Timeout.SHORT)
GET_XML = Call("get_xml", NamedGuestRequest, str, Timeout.SHORT)
SET_AUTOSTART = Call("set_autostart", AutostartRequest, bool, Timeout.SHORT)
# guest to the MAC addresses of its interfaces, to the interface
LIST_ADDRESSES = Call(
    "guest_addresses", NamedGuestRequest, dict[str, dict[str, dict[str, Any]]], Timeout.SHORT
)
LIST_LEFTOVERS = Call("leftovers", HostRequest, Leftovers)
PLAN_PURGE = Call("purge", PurgePlanRequest, RemovalPlan, Timeout.SHORT)
# True, or ``left``: path to the reason why it is kept
PURGE: Call[PurgeRequest, bool | dict[str, dict[str, str]]] = Call(
    "purge", PurgeRequest, cast(Any, bool | dict[str, dict[str, str]])
)
PLAN_ORPHAN_REMOVAL = Call("remove_made", PurgePlanRequest, RemovalPlan, Timeout.SHORT)
REMOVE_ORPHANS = Call("remove_made", OrphanRequest, bool)
# None: the host alone cannot confirm that it has the guest
EJECT_SEED: Call[EjectRequest, bool | None] = Call(
    "seed_eject", EjectRequest, cast(Any, bool | None)
)
# disk that other hosts may have, to the reason
SHARED_DISKS = Call("shared_disks", NamedGuestRequest, dict[str, str])
# clean up backups of processes that died; returns the guests
SWEEP_BACKUPS = Call("backup_sweep", HostRequest, list[str])
# path to the reason to keep it; None: the host does not use it
STORAGE_USERS = Call("storage_users", StorageUsersRequest, dict[str, str | None], Timeout.SHORT)
NAMES_ON_DISK = Call("names_on_disk", HostRequest, list[str], Timeout.SHORT)
FETCH_IMAGE = Call("image_fetch", ImageRequest, FetchedImage)
RUNNING_NAMES = Call("running_names", HostRequest, list[str], Timeout.SHORT)
