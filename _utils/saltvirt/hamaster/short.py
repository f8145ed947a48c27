"""Room that is kept for the loss of hosts, and is there no longer: whatever took it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from saltvirt.hamaster.seen import LossSeen

KEPT, SHORT = "kept", "short"


class Short:
    """tell: called with the hosts, the old state, the new one and why, once for each change."""

    def __init__(self, tell: Callable[[str, str, str, str], None]) -> None:
        self._tell = tell
        self._short: dict[str, tuple[str, ...]] = {}

    def look(self, name: str, loss: LossSeen) -> None:
        """What would become of the guests of those hosts (``hyper1 and hyper2``) now."""
        old, new = self._short.get(name, ()), tuple(sorted(loss.unplaced))
        if new == old:
            return
        self._short[name] = new
        why = f"if {name} died, no host would take {', '.join(new)}"
        state = SHORT if new else KEPT
        hosts = name.replace(" and ", "+")
        self._tell(hosts, SHORT if old else KEPT, state, why if new else "there is room for all")

    def forget(self, names: Mapping[str, object]) -> None:
        """All but these are looked at no more."""
        self._short = {name: one for name, one in self._short.items() if name in names}
