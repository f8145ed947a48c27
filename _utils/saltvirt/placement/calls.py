"""The calls that create and start guests: the placement terms of the master accompany them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from saltvirt.answers.calls import Call, Timeout
from saltvirt.answers.created import CreatedGuest, PlannedGuest, RenamedGuest
from saltvirt.answers.guest_changes import ResizedDisk, UpdatedGuest
from saltvirt.answers.power import PowerChange
from saltvirt.placement.account import PlacementTerms
from saltvirt.placement.facts import Inventory
from saltvirt.schema import Message, optional


@dataclass(frozen=True)
class InventoryRequest(Message):
    """guest: arguments of ``virt.init``; the answer then has the needs of that guest."""

    guest: dict[str, Any] | None = optional(None)


@dataclass(frozen=True, kw_only=True)
class CreateRequest(Message):
    """Create a guest on the host.

    cpu: count. mem: MiB, or a size with a unit. image: of its system disk. metadata: for the
    guest's record. placement: the master's policy. options: further arguments of ``virt.init``.
    from_master: the host requests the secret arguments from the master. definition: with ``test``,
    return the definition. test: change nothing.
    """

    UNDECLARED: ClassVar[str] = "options"

    name: str
    cpu: Any
    mem: Any
    image: str | None
    hypervisor: str | None
    metadata: dict[str, Any]
    start: bool = False
    approve_key: bool = True
    placement: PlacementTerms | None = optional(None)
    from_master: bool = optional(False)
    definition: bool = optional(False)
    test: bool = optional(False)
    options: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class CopyRequest(Message):
    """Clone or rename a guest that is off.

    vm_, name: its current name and the new one. start, approve_key: see ``virt.clone``. placement:
    the master's policy for a clone. options, from_master, test: as for CreateRequest.
    """

    UNDECLARED: ClassVar[str] = "options"

    vm_: str
    name: str
    start: bool | None = optional(None)
    approve_key: bool = optional(False)
    placement: PlacementTerms | None = optional(None)
    from_master: bool = optional(False)
    test: bool = optional(False)
    options: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class PowerRequest(Message):
    """Perform a verb on a guest if it is in one of the states.

    verb: ``start``, ``shutdown`` and others. states: libvirt's names. last_seen: only if the host
    alone can confirm that it has the guest. timeout: of a shutdown or reboot, in seconds.
    placement: the master's policy for a start. overcommit: start although the host lacks capacity.
    """

    name: str
    verb: str
    states: tuple[str, ...]
    last_seen: bool = optional(False)
    timeout: float | None = optional(None)
    placement: PlacementTerms | None = optional(None)
    overcommit: bool | None = optional(None)


@dataclass(frozen=True)
class StartCheckRequest(Message):
    """Check whether the host admits the start of a guest. See PowerRequest."""

    name: str
    placement: PlacementTerms | None = None
    overcommit: bool | None = optional(None)
    test: bool = True


@dataclass(frozen=True, kw_only=True)
class UpdateRequest(Message):
    """Change a guest. options: further arguments of ``virt.update``. placement, overcommit: see
    PowerRequest. test: change nothing."""

    UNDECLARED: ClassVar[str] = "options"

    name: str
    placement: PlacementTerms | None = None
    overcommit: bool | None = optional(None)
    test: bool = optional(False)
    options: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class ResizeRequest(Message):
    """Grow a disk of a guest. disk: its name or target. size: MiB, or a size with a unit. See
    UpdateRequest."""

    vm_: str
    disk: str
    size: Any
    placement: PlacementTerms | None = None
    overcommit: bool | None = optional(None)
    test: bool = optional(False)


INVENTORY = Call("inventory", InventoryRequest, Inventory, Timeout.SHORT)
CREATE = Call("init", CreateRequest, CreatedGuest)
CHECK_CREATE = Call("init", CreateRequest, dict[str, Any])
PLAN_GUEST = Call("init", CreateRequest, PlannedGuest)
CLONE = Call("clone", CopyRequest, CreatedGuest)
RENAME = Call("rename", CopyRequest, RenamedGuest)
CHECK_CLONE = Call("clone", CopyRequest, dict[str, Any])
CHECK_RENAME = Call("rename", CopyRequest, dict[str, Any])
POWER = Call("power", PowerRequest, PowerChange)
CHECK_START = Call("start", StartCheckRequest, bool)
UPDATE = Call("update", UpdateRequest, UpdatedGuest)
RESIZE_DISK = Call("resize_disk", ResizeRequest, ResizedDisk)
