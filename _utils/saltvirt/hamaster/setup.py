"""The agents on the hosts: installed, and told the settings that all must have alike."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.hamaster.config import HaConfig
from saltvirt.hamaster.person import Person
from saltvirt.operations.operation import Checked, Reasons, Result, Several

INSTALL, SETTINGS = "virt.ha_install", "virt.ha_settings"


def settings_of(config: HaConfig, host: str) -> dict[str, Any]:
    """What the agent of a host is told. No secret is in it."""
    members = {
        name: f"{_bracketed(one.address)}:{one.port}" for name, one in config.members.items()
    }
    own = config.members[host]
    return {
        "host": host,
        "members": members,
        "masters": list(config.masters),
        "port": own.port,
        "watchdog": own.watchdog,
        "pools": list(config.pools),
        "policy": asdict(config.policy),
    }


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


class Setup:
    """host: that one alone."""

    def __init__(self, fleet: Fleet, host: str | None = None) -> None:
        self.fleet, self.host = fleet, host
        self.person = Person(fleet, "ha_setup")

    def check(self) -> Several:
        """What each host would do."""
        reasons = Reasons()
        with reasons:
            self._refuse_others()
        if reasons.words:
            return Several((reasons.checked(self.host or "ha"),))
        return Several(tuple(self._one(host, test=True) for host in self._hosts()))

    def run(self) -> Several:
        """Raises InvalidInput, NotFound, OperationFailed. A host that fails stops no other."""
        self._refuse_others()
        return Several(tuple(self._one(host, test=False) for host in self._hosts()))

    def _refuse_others(self) -> None:
        """Raises OperationFailed while armed, for settings that the engine does not go by: what it
        proves rests on what agents keep to; and for other members than those that count."""
        config, engine = self.person.config, self.person.engine
        if not self.person.armed or not engine.seen.at_s:
            return
        if engine.seen.settings != config.digest:
            raise errors.OperationFailed(
                "virt:ha was changed, and the engine goes by what it was before: restart "
                "salt-master, then salt-run virt.ha_setup again"
            )
        counted = engine.registry.members
        if counted and set(counted) != set(config.members):
            raise errors.OperationFailed(
                f"members are {', '.join(sorted(counted))} for as long as high availability is "
                "armed: salt-run virt.ha_disarm, then virt.ha_setup, then virt.ha_arm"
            )

    def _hosts(self) -> list[str]:
        members = self.person.config.members
        for name in [self.person.member(self.host)] if self.host else members:
            self.fleet.hosts(name)
        return [self.host] if self.host else list(members)

    def _one(self, host: str, test: bool) -> Result:
        reasons, changes = Reasons(), dict[str, Any]()
        with reasons:
            words = []
            told = settings_of(self.person.config, host)
            for function, asked in ((INSTALL, {}), (SETTINGS, {"settings": told})):
                answer = self.fleet.one(host, function, {**asked, "test": test})
                if not isinstance(answer, dict) or not isinstance(answer.get("changes"), dict):
                    raise errors.BadAnswer(f"{host}: {function} answered what is none")
                changes |= answer["changes"]
                words.append(str(answer.get("comment", "")))
            if changes:
                words.append(
                    "its firewall is left as it is: the formula's libvirt.firewall opens TCP "
                    f"{told['port']} to the other hypervisors and the masters, or do it yourself"
                )
            comment = "; ".join(filter(None, words))
            if test:
                return Checked(host, comment, changes, nothing=not changes)
            return Result(host, comment, changes)
        comment = "; ".join(reasons.words)
        return Checked(host, comment, changes, reasons=reasons.words)
