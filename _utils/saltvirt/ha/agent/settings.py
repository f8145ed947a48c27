"""The settings of an agent, in a file that only root can write: /etc/salt-virt/ha.json."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltvirt import errors, units
from saltvirt.ha.model.policy import SHUTDOWN_POLICIES, HaPolicy, settings_digest
from saltvirt.ha.transport import addresses, tls
from saltvirt.ha.transport.peer_network import PORT
from saltvirt.schema import Message
from saltvirt.system import paths
from saltvirt.system.tls_listener import CertificateFiles

PATH = "/etc/salt-virt/ha.json"


@dataclass(frozen=True)
class AgentSettings(Message):
    """host: its own name, as in its certificate. members: all hosts, each with its address, or
    ADDRESS:PORT. masters: the names in the certificates of those that may lead. port: where it
    listens. watchdog: the device; None: none. pools: folders of file systems that hosts share. pki:
    the folder of the certificates. state, run: folders of the agent. uri: of libvirt. policy:
    fields of HaPolicy."""

    host: str
    members: dict[str, str]
    masters: tuple[str, ...] = ()
    port: int = PORT
    watchdog: str | None = None
    pools: tuple[str, ...] = ()
    pki: str = "/etc/pki"
    state: str = f"{paths.STATE}/ha"
    run: str = f"{paths.RUN}/ha"
    uri: str = "qemu:///system"
    policy: dict[str, Any] = field(default_factory=dict)

    @property
    def ha_policy(self) -> HaPolicy:
        """The HaPolicy with the configured fields."""
        return HaPolicy(**self.policy)

    @property
    def digest(self) -> str:
        """The digest of the settings that must be the same on all machines."""
        return settings_digest(self.ha_policy, self.members, self.masters, self.pools)

    @property
    def credentials(self) -> tls.PeerCredentials:
        """The certificates of the host's libvirt."""
        base = f"{self.pki}/libvirt"
        return tls.PeerCredentials(
            ca=f"{self.pki}/CA/cacert.pem",
            client=CertificateFiles(f"{base}/clientcert.pem", f"{base}/private/clientkey.pem"),
            server=CertificateFiles(f"{base}/servercert.pem", f"{base}/private/serverkey.pem"),
            revoked=f"{self.pki}/CA/cacrl.pem",
        )

    def endpoint(self, member: str) -> tuple[str, int]:
        """Return (address, port) of a member's agent."""
        return addresses.parse(self.members[member], self.port)


def read(path: str = PATH) -> AgentSettings:
    """Read the settings from a file. Raises InvalidInput, NotFound."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise errors.NotFound(f"cannot read {path}: {exc}") from exc
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise errors.InvalidInput(f"{path} is not valid JSON: {exc}") from exc
    return parse(data, path)


def parse(data: object, source: str) -> AgentSettings:
    """Parse the settings. Raises InvalidInput."""
    settings = AgentSettings.from_answer(data, source)
    unknown = set(data) - {item.name for item in dataclasses.fields(settings)}  # type: ignore[call-overload]
    problems = [f"unknown settings {', '.join(sorted(unknown))}"] if unknown else []
    problems += [*_names(settings), *_paths(settings), *policy_problems(settings.policy)]
    for name in settings.members:
        try:
            settings.endpoint(name)
        except errors.InvalidInput as exc:
            problems.append(f"members.{name}: {exc}")
    if problems:
        raise errors.InvalidInput(f"{source}: {'; '.join(problems)}")
    return settings


def _names(settings: AgentSettings) -> list[str]:
    problems = (
        []
        if settings.host in settings.members
        else [f"host {settings.host} is not among the members"]
    )
    for name in (*settings.members, *settings.masters):
        if not 0 < len(name) <= tls.MAX_NAME_LENGTH or "/" in name or name.startswith("."):
            problems.append(f"{units.short_repr(name)} cannot be the name of a certificate")
    duplicates = set(settings.members) & set(settings.masters)
    return problems + [f"{name} is both a member and a master" for name in sorted(duplicates)]


def _paths(settings: AgentSettings) -> list[str]:
    paths = [settings.pki, settings.state, settings.run, *settings.pools]
    paths += [settings.watchdog] if settings.watchdog else []
    return [
        f"{units.short_repr(path)} is not an absolute path" for path in paths if path[:1] != "/"
    ]


def policy_problems(values: dict[str, Any]) -> list[str]:
    """Return what is wrong with the times and counts that must be the same on all machines."""
    policy_fields = {item.name: item for item in dataclasses.fields(HaPolicy)}
    problems = [f"policy.{name} is unknown" for name in values if name not in policy_fields]
    for name, value in values.items():
        if name == "shutdown_policy":
            if value not in SHUTDOWN_POLICIES:
                problems.append(f"policy.{name} must be one of {', '.join(SHUTDOWN_POLICIES)}")
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
            problems.append(f"policy.{name} must be a number from 0")
    if problems:
        return problems
    policy = HaPolicy(**values)
    if not 0 < policy.beat_s < min(policy.suspect_s, policy.feed_lease_s, policy.watchdog_s) / 2:
        problems.append(
            "policy: beat_s must be shorter than half of suspect_s, feed_lease_s and watchdog_s"
        )
    return problems
