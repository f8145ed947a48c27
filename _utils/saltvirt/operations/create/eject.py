"""Take the volume for cloud-init from a guest that has told who it is."""

from __future__ import annotations

from saltvirt import errors, names
from saltvirt.fleet import target
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import find
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.journal import lock


class Eject:
    """Ejects and deletes the volume. Of a minion that is no guest of this master's no host is
    asked, and one that has never reached this master keeps it."""

    verb = "virt.seed_eject"

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, str(name)

    def check(self) -> Checked:
        """Where the guest is that would lose its volume."""
        reasons = Reasons()
        with reasons:
            if self._is_ours():
                with lock.guest(self.fleet.opts, self.name, self.verb):
                    host, _ = find.locate(self.fleet, self.name)
                comment = f"{self.name} on {host} would lose its volume"
                return Checked(self.name, comment, details={"host": host})
            return Checked(self.name, self._no_guest(), nothing=True)
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Raises InvalidInput, NotFound, OperationFailed."""
        if not self._is_ours():
            return Result(self.name, self._no_guest())
        with lock.guest(self.fleet.opts, self.name, self.verb):
            host, taken = self._on_cached_host() or self._on_any_host()
        comment = f"{self.name} on {host} has no volume for cloud-init"
        return Result(self.name, comment, {"ejected": True} if taken else {}, {"host": host})

    def _on_cached_host(self) -> tuple[str, bool] | None:
        """(the host where the guest was last seen, whether there was a volume); None when that host
        alone cannot say that this is the guest."""
        host = find.cached_host(self.fleet, self.name)
        if host is None:
            return None
        arguments = {"name": self.name, "last_seen": True}
        answer = self.fleet.gather([host], self.verb, arguments, patient=True)[host]
        return (host, answer.data) if answer.ok and answer.data is not None else None

    def _on_any_host(self) -> tuple[str, bool]:
        """The same by what all hosts say."""
        host, _ = find.locate(self.fleet, self.name)
        return host, self.fleet.call(host, self.verb, {"name": self.name}, long=True)

    def _is_ours(self) -> bool:
        """Whether this master made it. Raises OperationFailed as long as it has not reached it."""
        opts, name = self.fleet.opts, names.guest(self.name)
        if name not in KeyStore(opts).guest_ids():
            return False
        if not target.reported(opts, name):
            raise errors.OperationFailed(
                f"{name} has not reached this master yet: its volume for cloud-init stays"
            )
        return True

    def _no_guest(self) -> str:
        return f"{self.name} is no guest that this master made"
