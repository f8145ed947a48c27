"""Delete a volume of a storage pool that no guest uses."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, units
from saltvirt.answers import inspect_calls
from saltvirt.answers.guest_calls import HostRequest
from saltvirt.answers.host_calls import REMOVE_VOLUME, VolumeRequest
from saltvirt.answers.removal import VolumeRemoval
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import shared_storage_check
from saltvirt.operations.core.operation import Checked, Reasons, Result


class VolumeDeletion:
    """Deletes a volume. host: the host of the pool; None: the only host that has the volume.

    The host refuses a volume that a guest or an image needs. If other hosts can reach the volume,
    each of them must answer that it does not use it.
    """

    def __init__(self, fleet: Fleet, pool: str, volume: str, host: str | None = None) -> None:
        self.fleet, self.pool, self.volume, self.host = fleet, pool, volume, host
        self.subject = f"{pool}/{volume}"

    def check(self) -> Checked:
        """Return what would be deleted, or why the volume stays."""
        reasons = Reasons()
        with reasons:
            host = self._locate()
            removal, _ = self._plan(host)
            comment = f"volume {self.subject} would be deleted on {host}"
            return Checked(self.subject, *self._described(host, removal, comment))
        return reasons.checked(self.subject)

    def run(self) -> Result:
        """Delete the volume. Raises NotFound, InvalidInput, OperationFailed,
        ConnectionFailed."""
        host = self._locate()
        _, unused = self._plan(host)
        request = VolumeRequest(self.pool, self.volume, tuple(unused))
        removal = REMOVE_VOLUME.ask(self.fleet, host, request)
        comment = f"volume {self.subject} was deleted on {host}"
        return Result(self.subject, *self._described(host, removal, comment))

    def _described(
        self, host: str, removal: VolumeRemoval, comment: str
    ) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Return comment, changes and details."""
        size = units.human_bytes(removal.allocation)
        changes = {"volume": {"old": removal.path, "new": None}}
        return f"{comment}, which frees {size}", changes, {"host": host}

    def _plan(self, host: str) -> tuple[VolumeRemoval, list[str]]:
        """Return what the host would delete, and the paths that no other host uses. Raises
        NotFound, OperationFailed."""
        request = VolumeRequest(self.pool, self.volume, test=True)
        removal = REMOVE_VOLUME.ask(self.fleet, host, request, long=False)
        unused, retained = shared_storage_check.unused_elsewhere(self.fleet, host, removal.shared)
        reason = "; ".join(filter(None, [removal.keep, *retained.values()]))
        if reason:
            raise errors.OperationFailed(f"volume {self.subject} stays on {host}: {reason}")
        return removal, unused

    def _locate(self) -> str:
        """Return the host that has the volume. Raises NotFound, InvalidInput, ConnectionFailed."""
        if self.host:  # empty: as of a variable that is not set
            self.fleet.hosts(self.host)
            return self.host
        answers, failed = inspect_calls.VOLUMES.gather(
            self.fleet, self.fleet.hosts(), HostRequest()
        )
        hosts = sorted(
            host
            for host, pools in answers.items()
            if self.pool in pools and self.volume in pools[self.pool].volumes
        )
        if len(hosts) > 1:
            text = ", ".join(hosts)
            raise errors.InvalidInput(
                f"several hosts have a volume {self.subject} ({text}): give host="
            )
        if failed:
            text = "; ".join(f"{host}: {reason}" for host, reason in sorted(failed.items()))
            advice = f"host={hosts[0]} deletes that of {hosts[0]}" if hosts else "give host="
            raise errors.ConnectionFailed(
                f"hosts that do not answer may have a volume {self.subject} ({text}): {advice}"
            )
        if not hosts:
            raise errors.NotFound(f"no volume {self.subject} in a running storage pool of any host")
        return hosts[0]
