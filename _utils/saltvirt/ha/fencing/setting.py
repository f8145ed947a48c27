"""A configured fence, and the request that another host runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt import errors, units
from saltvirt.schema import Message, optional

_AGENT = re.compile("fence_[a-z0-9_]{1,60}")
_OPTION = re.compile("[a-z][a-z0-9_-]{0,60}")
# options that Salt Virt sets itself, or that belong in a password_file
_RESERVED = ("action", "password", "passwd")


@dataclass(frozen=True)
class FenceSetting(Message):
    """A fence of a host. agent: a program of ClusterLabs' fence-agents. options: its options.
    password_file: a file with the password, on the machine that runs the agent. hosts: the hosts
    that run it, in order; empty: the master."""

    agent: str
    options: dict[str, str] = field(default_factory=dict)
    password_file: str | None = None
    hosts: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class FenceRequest(Message):
    """A master's request that a host runs a fence. host: the host to switch off; attempt: the
    leader's attempt."""

    host: str
    attempt: str
    fence: FenceSetting


@dataclass(frozen=True)
class FenceReply(Message):
    """The result of a FenceRequest."""

    host: str
    attempt: str
    state: str
    message: str = ""


def parse(label: str, definition: object) -> FenceSetting:
    """Parse a FenceSetting from the configuration. Raises InvalidInput."""
    values = mapping(definition, label, {"agent", "options", "from"})
    options = mapping(values.get("options") or {}, f"{label}: options", None)
    secret = options.pop("password_file", None)
    agent_options = {
        str(key): units.short_repr(value) if isinstance(value, (bool, int, float)) else value
        for key, value in options.items()
    }
    hosts = values.get("from") or ()
    hosts = (hosts,) if isinstance(hosts, str) else hosts
    if not isinstance(hosts, (list, tuple)) or not all(isinstance(name, str) for name in hosts):
        raise errors.InvalidInput(f"{label}: from must be a hypervisor or a list of hypervisors")
    return validate(
        label, FenceSetting(values.get("agent") or "", agent_options, secret, tuple(hosts))
    )


def validate(label: str, fence: FenceSetting) -> FenceSetting:
    """Return the fence if it can be run. Raises InvalidInput."""
    if not isinstance(fence.agent, str) or not _AGENT.fullmatch(fence.agent):
        raise errors.InvalidInput(
            f"{label}: agent must be the name of a fence agent such as fence_ipmilan, "
            f"not {units.short_repr(fence.agent)}"
        )
    secret = fence.password_file
    if secret is not None and not (isinstance(secret, str) and secret.startswith("/")):
        raise errors.InvalidInput(f"{label}: password_file must be an absolute path")
    for key, value in fence.options.items():
        if key in _RESERVED:
            advice = "is set by Salt Virt" if key == "action" else "belongs in a password_file"
            raise errors.InvalidInput(f"{label}: {key} {advice}")
        is_valid = isinstance(value, str) and value.isprintable() and _OPTION.fullmatch(key)
        if not is_valid:
            raise errors.InvalidInput(f"{label}: {key} must be a single line of text")
    return fence


def mapping(value: object, label: str, allowed: set[str] | None) -> dict[str, Any]:
    """Return a mapping that has only allowed keys. Raises InvalidInput."""
    if not isinstance(value, Mapping):
        raise errors.InvalidInput(f"{label} must be a mapping, not {units.short_repr(value)}")
    if allowed is not None and (unknown := sorted(map(str, set(value) - allowed))):
        raise errors.InvalidInput(
            f"{label}: unknown setting {', '.join(unknown)}; known: {', '.join(sorted(allowed))}"
        )
    return dict(value)
