"""Report when the reserve is no longer sufficient, whatever has taken the capacity."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from saltvirt.ha.manager.status_file import LossReport

SUFFICIENT, INSUFFICIENT = "sufficient", "insufficient"


class ReserveAlert:
    """notify: called once for each change with the hosts, the old state, the new state and the
    reason."""

    def __init__(self, notify: Callable[[str, str, str, str], None]) -> None:
        self._notify = notify
        self._unplaced: dict[str, tuple[str, ...]] = {}

    def update(self, name: str, loss: LossReport) -> None:
        """Handle the simulated loss of those hosts (``hyper1 and hyper2``)."""
        old, new = self._unplaced.get(name, ()), tuple(sorted(loss.unplaced))
        if new == old:
            return
        self._unplaced[name] = new
        reason = f"if {name} failed, no host would have capacity for {', '.join(new)}"
        state = INSUFFICIENT if new else SUFFICIENT
        hosts = name.replace(" and ", "+")
        self._notify(
            hosts,
            INSUFFICIENT if old else SUFFICIENT,
            state,
            reason if new else "there is capacity for all guests",
        )

    def forget(self, names: Mapping[str, object]) -> None:
        """Forget all sets of hosts except these."""
        self._unplaced = {
            name: unplaced for name, unplaced in self._unplaced.items() if name in names
        }
