"""States of deployments, through the master's runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saltvirt.states import on_master

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost


def deployed(host: StateHost, name: str, **options: Any) -> Answer:
    """See ``virt.deployed``."""
    deployment = str(name)
    arguments = {**options, "deployment": deployment}
    return on_master.run_on_master(host, deployment, "virt.deployed", arguments)
