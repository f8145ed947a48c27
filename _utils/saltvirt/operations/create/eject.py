"""Remove the seed volume of a guest whose system has configured itself."""

from __future__ import annotations

from saltvirt import errors, names
from saltvirt.answers.guest_calls import EJECT_SEED, EjectRequest
from saltvirt.fleet import target
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.operations.cluster import find
from saltvirt.operations.core.operation import Checked, Reasons, Result
from saltvirt.operations.journal import lock


class Eject:
    """Ejects and deletes the volume. For a minion that is not a guest of this master, no host is
    asked. If a guest has never reached this master, its volume stays."""

    verb = "virt.seed_eject"

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, str(name)

    def check(self) -> Checked:
        """Return the host on which the guest would lose its volume."""
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
        """Eject the volume. Raises InvalidInput, NotFound, OperationFailed."""
        if not self._is_ours():
            return Result(self.name, self._no_guest())
        with lock.guest(self.fleet.opts, self.name, self.verb):
            host, taken = self._on_cached_host() or self._on_any_host()
        comment = f"{self.name} on {host} has no volume for cloud-init"
        return Result(self.name, comment, {"ejected": True} if taken else {}, {"host": host})

    def _on_cached_host(self) -> tuple[str, bool] | None:
        """Return (the host where the guest was last seen, whether a volume existed); None if that
        host alone cannot confirm that it has the guest."""
        host = find.cached_host(self.fleet, self.name)
        if host is None:
            return None
        request = EjectRequest(self.name, last_seen=True)
        answer = EJECT_SEED.reply(self.fleet, host, request, long=False, patient=True)
        ejected = answer.get() if answer.ok else None
        return None if ejected is None else (host, ejected)

    def _on_any_host(self) -> tuple[str, bool]:
        """Do the same after asking all hosts."""
        host, _ = find.locate(self.fleet, self.name)
        return host, bool(EJECT_SEED.ask(self.fleet, host, EjectRequest(self.name)))

    def _is_ours(self) -> bool:
        """Return whether this master created the guest. Raises OperationFailed until the guest has
        reached this master."""
        opts, name = self.fleet.opts, names.guest(self.name)
        if name not in KeyStore(opts).guest_ids():
            return False
        if not target.reported(opts, name):
            raise errors.OperationFailed(
                f"{name} has not reached this master yet: its volume for cloud-init stays"
            )
        return True

    def _no_guest(self) -> str:
        return f"{self.name} is not a guest that this master created"
