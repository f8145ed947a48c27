"""Install the agents on the hosts, and send them the settings that must be the same everywhere."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.ha.manager.admin_request import AdminRequest
from saltvirt.ha.manager.config import HaConfig
from saltvirt.ha.model import calls
from saltvirt.operations.core.operation import Checked, Reasons, Result, Several


def settings_of(config: HaConfig, host: str) -> dict[str, Any]:
    """Return the settings of a host's agent. They contain no secret."""
    members = {
        name: f"{_bracketed(member.address)}:{member.port}"
        for name, member in config.members.items()
    }
    own_member = config.members[host]
    return {
        "host": host,
        "members": members,
        "masters": list(config.masters),
        "port": own_member.port,
        "watchdog": own_member.watchdog,
        "pools": list(config.pools),
        "policy": asdict(config.policy),
    }


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


class Setup:
    """host: only this one; None: all members."""

    def __init__(self, fleet: Fleet, host: str | None = None) -> None:
        self.fleet, self.host = fleet, host
        self.request = AdminRequest(fleet, "ha_setup")

    def check(self) -> Several:
        """Return what would change on each host."""
        reasons = Reasons()
        with reasons:
            self._refuse_changed()
        if reasons.texts:
            return Several((reasons.checked(self.host or "ha"),))
        return Several(tuple(self._set_up_host(host, test=True) for host in self._hosts()))

    def run(self) -> Several:
        """Raises InvalidInput, NotFound, OperationFailed. An error of one host does not affect the
        others."""
        self._refuse_changed()
        return Several(tuple(self._set_up_host(host, test=False) for host in self._hosts()))

    def _refuse_changed(self) -> None:
        """Raise OperationFailed while HA is armed, if the engine uses other settings, because its
        proofs depend on what agents do; or if the members differ from those that count."""
        config, engine = self.request.config, self.request.engine
        if not self.request.armed or not engine.report.at_s:
            return
        if engine.report.settings != config.digest:
            raise errors.OperationFailed(
                "virt:ha was changed, but the engine uses the previous settings: restart "
                "salt-master, then run salt-run virt.ha_setup again"
            )
        current_members = engine.registry.members
        if current_members and set(current_members) != set(config.members):
            raise errors.OperationFailed(
                f"the members cannot change from {', '.join(sorted(current_members))} while high "
                "availability is armed: run salt-run virt.ha_disarm, then virt.ha_setup, then "
                "virt.ha_arm"
            )

    def _hosts(self) -> list[str]:
        members = self.request.config.members
        for name in [self.request.member(self.host)] if self.host else members:
            self.fleet.hosts(name)
        return [self.host] if self.host else list(members)

    def _set_up_host(self, host: str, test: bool) -> Result:
        reasons, changes = Reasons(), dict[str, Any]()
        with reasons:
            comments = []
            settings = settings_of(self.request.config, host)
            for installed in (
                calls.INSTALL_AGENT.ask(self.fleet, host, calls.InstallRequest(test)),
                calls.CONFIGURE_AGENT.ask(self.fleet, host, calls.SettingsRequest(settings, test)),
            ):
                changes |= installed.changes
                comments.append(installed.comment)
            if changes:
                comments.append(
                    f"its firewall is not changed: open TCP {settings['port']} to the other "
                    "hypervisors and the masters, for example with the formula's libvirt.firewall"
                )
            comment = "; ".join(filter(None, comments))
            if test:
                return Checked(host, comment, changes, nothing=not changes)
            return Result(host, comment, changes)
        comment = "; ".join(reasons.texts)
        return Checked(host, comment, changes, reasons=reasons.texts)
