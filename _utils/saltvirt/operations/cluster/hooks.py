"""What the verbs of a master ask its features."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from saltvirt import errors, features
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster.ha_provider import HaProvider
from saltvirt.operations.core.operation import Result
from saltvirt.operations.journal.activity_log import LogEntry
from saltvirt.system import file_lock

# modules with HOOKS; a feature that is not installed has none
MODULES = ("ha.manager.hooks", "backup.manager.hooks")


class GuestSettings(Protocol):
    """The settings of a feature for the guests of a deployment."""

    def take_options(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a guest without those of the feature, which are stored for
        ``apply``. Raises InvalidInput, NotFound."""

    def apply(self, fleet: Fleet, name: str, host: str, test: bool) -> Result | None:
        """Apply the settings to an existing guest. Return what was changed or, with test, would be;
        None if nothing. Raises VirtError."""


class MasterHooks:
    """The hooks of a feature, each of which does nothing by default. opts: the master's
    configuration."""

    def ha_provider(self, opts: file_lock.Opts) -> HaProvider | None:
        """Return what manages guests on this master; None if nothing is configured."""

    def off_proofs(self, opts: file_lock.Opts) -> dict[str, str]:
        """Return the hosts that are proven to be off, with the proof."""
        return {}

    def guest_settings(self, opts: file_lock.Opts) -> GuestSettings | None:
        """Return the feature's settings for a new deployment; None if guests have none."""

    def log_entries(self, opts: file_lock.Opts) -> Iterable[LogEntry]:
        """Return what the feature has done by itself, the oldest first, for virt.log."""
        return ()

    def describe_guest(self, fleet: Fleet, name: str, uuid: str) -> dict[str, Any]:
        """Return what the feature knows about a guest, as keys of the answer of virt.vm_info; a key
        ``unknown`` has, for other keys, why they are not complete."""
        return {}


@functools.cache
def installed() -> tuple[MasterHooks, ...]:
    """Return the hooks of the installed features."""
    return tuple(module.HOOKS for module in features.installed(MODULES))


def ha_provider(opts: file_lock.Opts) -> HaProvider | None:
    """Return the HaProvider of a master; None if nothing is configured."""
    return next(filter(None, (feature.ha_provider(opts) for feature in installed())), None)


def off_proofs(opts: file_lock.Opts) -> dict[str, str]:
    """Return the hosts that are proven to be off, with the proof. Raises OperationFailed."""
    return {
        host: proof for feature in installed() for host, proof in feature.off_proofs(opts).items()
    }


def guest_settings(opts: file_lock.Opts) -> list[GuestSettings]:
    """Return the settings of all features for the guests of a new deployment."""
    return [*filter(None, (feature.guest_settings(opts) for feature in installed()))]


def log_entries(opts: file_lock.Opts) -> list[LogEntry]:
    """Return what the features have done by themselves."""
    return [entry for feature in installed() for entry in feature.log_entries(opts)]


def describe_guest(fleet: Fleet, name: str, uuid: str) -> list[dict[str, Any]]:
    """Return what the features know about a guest."""
    return [feature.describe_guest(fleet, name, uuid) for feature in installed()]


def idle_reason(opts: file_lock.Opts) -> str:
    """Return a line that says that high availability is disarmed; empty if it is armed, not
    configured, or unknown: virt.ha_status has the reason."""
    try:
        provider = ha_provider(opts)
        return provider.idle_reason() if provider else ""
    except errors.VirtError:
        return ""
