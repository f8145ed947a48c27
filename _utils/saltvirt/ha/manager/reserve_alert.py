"""Room that is kept for the loss of hosts, and is there no longer: whatever took it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from saltvirt.ha.manager.status_file import LossReport

SUFFICIENT, INSUFFICIENT = "kept", "short"


class ReserveAlert:
    """tell: called with the hosts, the old state, the new one and why, once for each change."""

    def __init__(self, notify: Callable[[str, str, str, str], None]) -> None:
        self._notify = notify
        self._unplaced: dict[str, tuple[str, ...]] = {}

    def update(self, name: str, loss: LossReport) -> None:
        """What would become of the guests of those hosts (``hyper1 and hyper2``) now."""
        old, new = self._unplaced.get(name, ()), tuple(sorted(loss.unplaced))
        if new == old:
            return
        self._unplaced[name] = new
        reason = f"if {name} died, no host would take {', '.join(new)}"
        state = INSUFFICIENT if new else SUFFICIENT
        hosts = name.replace(" and ", "+")
        self._notify(
            hosts,
            INSUFFICIENT if old else SUFFICIENT,
            state,
            reason if new else "there is room for all",
        )

    def forget(self, names: Mapping[str, object]) -> None:
        """All but these are looked at no more."""
        self._unplaced = {
            name: unplaced for name, unplaced in self._unplaced.items() if name in names
        }
