"""Permit a hypervisor to submit the minion key of a new guest."""

from __future__ import annotations

from typing import Any

from saltvirt import names
from saltvirt.fleet import authorization, pillars, target
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core.operation import Checked, Reasons, Result


class Authorize:
    """Write the permission. pillar: what this master will add to the guest's pillar."""

    def __init__(
        self, fleet: Fleet, name: str, host: str, pillar: dict[str, Any] | None = None
    ) -> None:
        self.fleet, self.name, self.host, self.pillar = fleet, str(name), host, pillar

    def check(self) -> Checked:
        """Return what the host would be permitted."""
        reasons = Reasons()
        with reasons:
            self._check_request(reasons)
            comment = f"{self.host} would be permitted to {self._permission_text()}"
            return Checked(self.name, comment, {"authorized": self.host})
        return reasons.checked(self.name)

    def run(self) -> Result:
        """Write the permission. Raises InvalidInput, NotFound, Unsupported."""
        self._check_request(Reasons(first=True))
        authorization.Authorizations(self.fleet.opts).grant(
            self.host, self.name, pillar=self.pillar
        )
        comment = f"{self.host} may {self._permission_text()}"
        return Result(self.name, comment, {"authorized": self.host})

    def _check_request(self, reasons: Reasons) -> None:
        opts = self.fleet.opts
        with reasons:
            target.refuse_host(opts, names.guest(self.name))
        with reasons:
            self.fleet.hosts(self.host)
            authorization.refuse_others(opts, self.host, self.name)
        with reasons:
            if self.pillar:
                pillars.check(opts, self.pillar)
        reasons.raise_first()

    def _permission_text(self) -> str:
        minutes = authorization.LIFETIME_S // 60
        return f"submit the key of {self.name} once, within {minutes} minutes"
