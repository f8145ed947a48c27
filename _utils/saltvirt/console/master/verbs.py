"""The results of the runner functions for displays and serial ports."""

from __future__ import annotations

import base64
from typing import Any

from saltvirt import errors, units
from saltvirt.answers import reach
from saltvirt.console import calls
from saltvirt.console.master import guest_connection, tickets
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find
from saltvirt.operations.core import result
from saltvirt.spec import values
from saltvirt.system import atomic_file

_PNG = b"\x89PNG\r\n\x1a\n"
ENGINE = "virt_reach"


def display(fleet: Fleet, name: str) -> dict[str, Any]:
    """The guest's displays and serial ports. Raises NotFound, and the errors of Fleet.call."""
    host, _ = find.last_seen(fleet, name) or find.locate(fleet, name)
    displays = calls.LIST_DISPLAYS.ask(fleet, host, calls.DisplaysRequest(name))
    kinds = (
        ", ".join(device.type for device in displays.displays) or "no display and no serial port"
    )
    comment = f"{name} on {host} is {displays.state} and has {kinds}"
    listed = [device.to_answer() for device in displays.displays]
    return result.done(
        name, comment, host=host, uuid=displays.uuid, state=displays.state, displays=listed
    )


def screenshot(fleet: Fleet, name: str, width: object, screen: object) -> dict[str, Any]:
    """A picture of the guest's display. Raises NotFound, OperationFailed, and the errors of
    Fleet.call."""
    host, png = _screenshot(fleet, name, width, screen)
    comment = f"took a screenshot of {name} on {host}; dest=FILE writes it to a file of the master"
    return result.done(name, comment, host=host, png=png)


def save_screenshot(
    fleet: Fleet, name: str, width: object, screen: object, dest: str, overwrite: bool
) -> dict[str, Any]:
    """Write a picture of the guest's display to a file of this master, which only root can read.
    overwrite: replace an existing file. Raises AlreadyExists, InvalidInput, and the errors of
    ``screenshot``."""
    with atomic_file.create(dest, overwrite) as write:
        host, png = _screenshot(fleet, name, width, screen)
        try:
            content = base64.b64decode(png, validate=True)
        except ValueError:
            content = b""
        if not content.startswith(_PNG):
            raise errors.OperationFailed(f"the answer of {host} is not a picture of {name}")
        write(content)
    comment = f"{dest} is a screenshot of {name} on {host}, {units.human_bytes(len(content))}"
    return result.done(name, comment, {"path": dest}, host=host, size_bytes=len(content))


def _screenshot(fleet: Fleet, name: str, width: object, screen: object) -> tuple[str, str]:
    """(The guest's host, its picture in base64)."""
    request = calls.ScreenshotRequest(
        name, values.number()(width, "width"), values.number()(screen, "screen")
    )
    host = guest_connection.host_of(fleet, name)
    return host, calls.TAKE_SCREENSHOT.ask(fleet, host, request).png


def ticket(
    fleet: Fleet,
    user: str | None,
    name: str,
    kind: str,
    digest: object,
    screen: object = 0,
    force: object = False,
) -> dict[str, Any]:
    """Issue a ticket for a guest. user: for whom; None: a user with access to the master. screen,
    force: see ReachRequest.

    Raises InvalidInput, NotFound, OperationFailed, AlreadyExists, and the errors of Fleet.call.
    """
    if kind not in reach.KINDS:
        kinds = " or ".join(reach.KINDS)
        raise errors.InvalidInput(f"kind must be {kinds}, not {units.short_repr(kind)}")
    number, is_forced = values.number()(screen, "screen"), values.flag(force, "force")
    with tickets.issuing(fleet.opts, user, digest) as connections:
        connections.append(guest_connection.request_relay(fleet, name, kind, number, is_forced))
    [connection] = connections
    comment = f"connect to the {kind} of {name} on {connection.host} within {tickets.LIFE_S} s"
    return result.done(
        name, comment, host=connection.host, uuid=connection.uuid, kind=kind, type=connection.type,
        seconds=tickets.LIFE_S,
    )  # fmt: skip


def watch(opts: dict[str, Any], user: str | None, digest: object) -> dict[str, Any]:
    """Issue a ticket for a page. Raises InvalidInput, OperationFailed, AlreadyExists."""
    engines = opts.get("engines") or []
    if not any(ENGINE in engine for engine in engines if isinstance(engine, (str, dict))):
        raise errors.OperationFailed(
            f"this master's configuration has no engine {ENGINE}: see docs/how-to/consoles.md"
        )
    with tickets.issuing(opts, user, digest):
        pass
    comment = f"watch the cloud within {tickets.LIFE_S} s"
    return result.done("page", comment, seconds=tickets.LIFE_S)
