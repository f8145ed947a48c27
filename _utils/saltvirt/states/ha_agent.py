"""State of the high availability agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def installed(host: StateHost, name: str, settings: dict[str, Any] | None = None) -> Answer:
    """See ``virt.ha_agent``."""
    response = host.call("ha_install", test=host.test)
    changes, comment = dict(response["changes"]), response["comment"]
    if settings is not None:
        response = host.call("ha_settings", settings, test=host.test)
        changes, comment = {**changes, **response["changes"]}, response["comment"]
    return answer(name, changes, comment, host.test)
