"""The warning of verbs that show the cloud while high availability is disarmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from saltvirt.operations.cluster import hooks
from saltvirt.operations.core import report


def show(functions: Mapping[str, Callable[..., Any]], opts: dict[str, Any]) -> None:
    """Print the warning for the person who calls the verb. functions: of the runner."""
    warning = hooks.idle_reason(opts)
    if warning:
        report.screen(functions, opts).line(warning)
