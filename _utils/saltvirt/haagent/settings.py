"""What an agent is told, in a file that root alone can write: /etc/salt-virt/ha.json."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltvirt import errors, places, units
from saltvirt.ha.policy import SHUTDOWN_POLICIES, HaPolicy, settings_digest
from saltvirt.hatalk import addresses, tls
from saltvirt.hatalk.talk import PORT
from saltvirt.wire import Fact

PATH = "/etc/salt-virt/ha.json"


@dataclass(frozen=True)
class AgentSettings(Fact):
    """host: its own name, as in its certificate. members: all hosts, each with its address, or
    ADDRESS:PORT. masters: names in the certificates of those that may lead. port: where it
    listens. watchdog: the device; None: there is none. pools: folders of file systems that hosts
    share. pki: where the certificates are. state, run: folders of its own. uri: libvirt's. policy:
    fields of HaPolicy.
    """

    host: str
    members: dict[str, str]
    masters: tuple[str, ...] = ()
    port: int = PORT
    watchdog: str | None = None
    pools: tuple[str, ...] = ()
    pki: str = "/etc/pki"
    state: str = f"{places.STATE}/ha"
    run: str = f"{places.RUN}/ha"
    uri: str = "qemu:///system"
    policy: dict[str, Any] = field(default_factory=dict)

    @property
    def patience(self) -> HaPolicy:
        """The HaPolicy that the policy's fields make."""
        return HaPolicy(**self.policy)

    @property
    def digest(self) -> str:
        """Of what all machines must have alike."""
        return settings_digest(self.patience, self.members, self.masters, self.pools)

    @property
    def credentials(self) -> tls.Credentials:
        """Those of the host's libvirt."""
        base = f"{self.pki}/libvirt"
        return tls.Credentials(
            ca=f"{self.pki}/CA/cacert.pem",
            client=tls.Pair(f"{base}/clientcert.pem", f"{base}/private/clientkey.pem"),
            server=tls.Pair(f"{base}/servercert.pem", f"{base}/private/serverkey.pem"),
            revoked=f"{self.pki}/CA/cacrl.pem",
        )

    def where(self, member: str) -> tuple[str, int]:
        """(address, port) of a member's agent."""
        return addresses.parse(self.members[member], self.port)


def read(path: str = PATH) -> AgentSettings:
    """The settings in a file. Raises InvalidInput, NotFound."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise errors.NotFound(f"cannot read {path}: {exc}") from exc
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise errors.InvalidInput(f"{path} is no JSON: {exc}") from exc
    return parse(data, path)


def parse(data: object, whose: str) -> AgentSettings:
    """The settings in plain data. Raises InvalidInput."""
    found = AgentSettings.from_answer(data, whose)
    unknown = set(data) - {one.name for one in dataclasses.fields(found)}  # type: ignore[call-overload]
    wrong = [f"unknown settings {', '.join(sorted(unknown))}"] if unknown else []
    wrong += [*_names(found), *_paths(found), *wrong_in_policy(found.policy)]
    for name in found.members:
        try:
            found.where(name)
        except errors.InvalidInput as exc:
            wrong.append(f"members.{name}: {exc}")
    if wrong:
        raise errors.InvalidInput(f"{whose}: {'; '.join(wrong)}")
    return found


def _names(found: AgentSettings) -> list[str]:
    wrong = [] if found.host in found.members else [f"host {found.host} is not among the members"]
    for name in (*found.members, *found.masters):
        if not 0 < len(name) <= tls.NAME_MOST or "/" in name or name.startswith("."):
            wrong.append(f"{units.shown(name)} is no name of a certificate")
    both = set(found.members) & set(found.masters)
    return wrong + [f"{name} is a member and a master" for name in sorted(both)]


def _paths(found: AgentSettings) -> list[str]:
    paths = [found.pki, found.state, found.run, *found.pools]
    paths += [found.watchdog] if found.watchdog else []
    return [f"{units.shown(path)} is no absolute path" for path in paths if path[:1] != "/"]


def wrong_in_policy(given: dict[str, Any]) -> list[str]:
    """What is wrong in the times and counts that all machines have alike, one sentence each."""
    known = {one.name: one for one in dataclasses.fields(HaPolicy)}
    wrong = [f"policy.{name} is unknown" for name in given if name not in known]
    for name, value in given.items():
        if name == "shutdown_policy":
            if value not in SHUTDOWN_POLICIES:
                wrong.append(f"policy.{name} is none of {', '.join(SHUTDOWN_POLICIES)}")
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
            wrong.append(f"policy.{name} is not a number from 0")
    if wrong:
        return wrong
    policy = HaPolicy(**given)
    if not 0 < policy.beat_s < min(policy.suspect_s, policy.feed_lease_s, policy.watchdog_s) / 2:
        wrong.append("policy: a beat must be shorter than half of every time that waits for one")
    return wrong
