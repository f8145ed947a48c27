"""One way to switch a host off, as it is configured and as it is asked of another host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors, units
from saltvirt.wire import Fact, seldom

_AGENT = re.compile("fence_[a-z0-9_]{1,60}")
_OPTION = re.compile("[a-z][a-z0-9_-]{0,60}")
# ours to say, or secrets, which are in a file
_OURS = ("action", "password", "passwd")


@dataclass(frozen=True)
class FenceSetting(Fact):
    """agent: a program of ClusterLabs' fence-agents. options: its own. password_file: a file that
    has the password, where the agent is run. hosts: those that run it, in turn; none: the
    master."""

    agent: str
    options: dict[str, str] = field(default_factory=dict)
    password_file: str | None = None
    hosts: tuple[str, ...] = seldom(())


@dataclass(frozen=True)
class FenceAsked(Fact):
    """A master has a host run a fence. host: which is to be off; attempt: of the leader's."""

    host: str
    attempt: str
    fence: FenceSetting


@dataclass(frozen=True)
class FenceTold(Fact):
    """How that ended."""

    host: str
    attempt: str
    state: str
    words: str = ""


def parse(where: str, given: object) -> FenceSetting:
    """A FenceSetting as a person writes it. Raises InvalidInput."""
    one = mapping(given, where, {"agent", "options", "from"})
    options = mapping(one.get("options") or {}, f"{where}: options", None)
    secret = options.pop("password_file", None)
    found = {
        str(key): units.shown(value) if isinstance(value, (bool, int, float)) else value
        for key, value in options.items()
    }
    hosts = one.get("from") or ()
    hosts = (hosts,) if isinstance(hosts, str) else hosts
    if not isinstance(hosts, (list, tuple)) or not all(isinstance(each, str) for each in hosts):
        raise errors.InvalidInput(f"{where}: from must be a hypervisor, or a list of them")
    return checked(where, FenceSetting(one.get("agent") or "", found, secret, tuple(hosts)))


def checked(where: str, fence: FenceSetting) -> FenceSetting:
    """The same where it can be run. Raises InvalidInput."""
    if not isinstance(fence.agent, str) or not _AGENT.fullmatch(fence.agent):
        raise errors.InvalidInput(
            f"{where}: agent must be the name of a fence agent such as fence_ipmilan, "
            f"not {units.shown(fence.agent)}"
        )
    secret = fence.password_file
    if secret is not None and not (isinstance(secret, str) and secret.startswith("/")):
        raise errors.InvalidInput(f"{where}: password_file must be an absolute path")
    for key, value in fence.options.items():
        if key in _OURS:
            advice = "is given by Salt Virt" if key == "action" else "belongs in a password_file"
            raise errors.InvalidInput(f"{where}: {key} {advice}")
        fits = isinstance(value, str) and value.isprintable() and _OPTION.fullmatch(key)
        if not fits:
            raise errors.InvalidInput(f"{where}: {key} must be a text of one line")
    return fence


def mapping(given: object, where: str, known: set[str] | None) -> dict[str, Any]:
    """A mapping with no other keys than the known ones. Raises InvalidInput."""
    if not isinstance(given, Mapping):
        raise errors.InvalidInput(f"{where} must be a mapping, not {units.shown(given)}")
    if known is not None and (unknown := sorted(map(str, set(given) - known))):
        raise errors.InvalidInput(
            f"{where}: unknown setting {', '.join(unknown)}; known: {', '.join(sorted(known))}"
        )
    return dict(given)
