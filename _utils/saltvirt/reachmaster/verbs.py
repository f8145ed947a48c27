"""What the runner's verbs of displays and serial ports answer."""

from __future__ import annotations

from typing import Any

from saltvirt import errors, units
from saltvirt.answers import reach
from saltvirt.fleet.client import Fleet
from saltvirt.operations import find, result
from saltvirt.reachmaster import tickets, way

ENGINE = "virt_reach"


def display(fleet: Fleet, name: str) -> dict[str, Any]:
    """Raises NotFound, and as Fleet.one does."""
    host, _ = find.last_seen(fleet, name) or find.locate(fleet, name)
    answer = fleet.one(host, "virt.display", {"vm_": name}, long=False)
    found = reach.Displays.from_answer(answer, host)
    kinds = ", ".join(one.type for one in found.displays) or "no display and no serial port"
    comment = f"{name} on {host} is {found.state} and has {kinds}"
    listed = [one.to_answer() for one in found.displays]
    return result.done(
        name, comment, host=host, uuid=found.uuid, state=found.state, displays=listed
    )


def screenshot(fleet: Fleet, name: str, width: object, screen: object) -> dict[str, Any]:
    """Raises NotFound, OperationFailed, and as Fleet.one does."""
    host = way.host_of(fleet, name)
    asked = {"vm_": name, "width": width, "screen": screen}
    found = reach.Screen.from_answer(fleet.one(host, "virt.screen", asked, long=False), host)
    return result.done(name, f"the screen of {name} on {host}", host=host, png=found.png)


def ticket(
    fleet: Fleet, user: str | None, name: str, kind: str, digest: object, **options: Any
) -> dict[str, Any]:
    """Makes one. user: for whom, None: somebody who has the master. Raises InvalidInput, NotFound,
    OperationFailed, AlreadyExists, and as Fleet.one does."""
    if kind not in reach.KINDS:
        known = " or ".join(reach.KINDS)
        raise errors.InvalidInput(f"kind must be {known}, not {units.shown(kind)}")
    with tickets.making(fleet.opts, user, digest) as found:
        found.append(way.opened(fleet, name, kind, **options))
    [made] = found
    comment = f"the {kind} of {name} on {made.host} can be reached within {tickets.LIFE_S} s"
    return result.done(
        name, comment, host=made.host, uuid=made.uuid, kind=kind, type=made.type,
        seconds=tickets.LIFE_S,
    )  # fmt: skip


def watch(opts: dict[str, Any], user: str | None, digest: object) -> dict[str, Any]:
    """Makes a page's. Raises InvalidInput, OperationFailed, AlreadyExists."""
    engines = opts.get("engines") or []
    if not any(ENGINE in one for one in engines if isinstance(one, (str, dict))):
        raise errors.OperationFailed(
            f"this master's configuration has no engine {ENGINE}: docs/reach.md"
        )
    with tickets.making(opts, user, digest):
        pass
    comment = f"the cloud can be watched within {tickets.LIFE_S} s"
    return result.done("page", comment, seconds=tickets.LIFE_S)
