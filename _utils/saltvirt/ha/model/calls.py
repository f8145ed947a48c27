"""The calls of high availability that the master makes to the agents' hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from saltvirt.answers.calls import Call, Timeout
from saltvirt.schema import Message


@dataclass
class InstallResult(Message):
    """The changes, made or planned: file or service to the action."""

    changes: dict[str, str] = field(default_factory=dict)
    comment: str = ""


@dataclass(frozen=True)
class InstallRequest(Message):
    """Install the agent. test: only show what would change."""

    test: bool = False


@dataclass(frozen=True)
class SettingsRequest(Message):
    """Write the agent's settings, and start or reload it. test: only show what would change."""

    settings: dict[str, Any]
    test: bool = False


@dataclass(frozen=True)
class ManagedGuestRequest(Message):
    """Whether high availability manages a guest, according to the host's agent."""

    name: str


# public functions of the host, for its states, too
INSTALL_AGENT = Call("ha_install", InstallRequest, InstallResult)
CONFIGURE_AGENT = Call("ha_settings", SettingsRequest, InstallResult)
# the answer is empty if the guest is not managed
WHY_MANAGED = Call("ha_kept", ManagedGuestRequest, str, Timeout.SHORT)
