"""What the core asks the features of a hypervisor before it changes a guest."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree

from saltvirt import features

# modules with HOOKS; a feature that is not installed has none
MODULES = ("backup.export.hooks", "ha.agent.hooks")


@dataclass(frozen=True)
class RetainedGuest:
    """A guest that another one has replaced, and whose disks are retained. uuid: of both. label,
    reason: name it and say what deletes its disks. tree: its definition."""

    uuid: str
    label: str
    reason: str
    tree: ElementTree.Element


class HostHooks:
    """The hooks of a feature, each of which does nothing by default. Each check raises Refused or
    OperationFailed."""

    def check_operation(self, operation: str, name: str) -> None:
        """Check whether an operation on a guest is allowed. Called under the guest's lock."""

    def check_start(self, name: str) -> None:
        """Check whether a guest can be started on this host."""

    def check_autostart(self, name: str) -> None:
        """Check whether a guest may start with this host."""

    def check_rename(self, name: str, uuid: str) -> None:
        """Check whether a guest can be renamed."""

    def check_network_change(self) -> None:
        """Check whether the network of this host can be changed."""

    def incomplete_reason(self, name: str) -> str | None:
        """Return why the disks of a guest are not complete on this host; None if they are."""

    def retained_guests(self, uuid: str | None = None) -> Iterable[RetainedGuest]:
        """Return the guests that were replaced, or the one with the UUID. Raises OperationFailed if
        a record cannot be read."""
        return ()

    def interrupted_guests(self) -> Iterable[str]:
        """Return the guests with leftovers of an interrupted operation of the feature."""
        return ()

    def port(self) -> int | None:
        """Return the TCP port on which the feature accepts connections; None if it does not."""


@functools.cache
def installed() -> tuple[HostHooks, ...]:
    """Return the hooks of the installed features."""
    return tuple(module.HOOKS for module in features.installed(MODULES))
