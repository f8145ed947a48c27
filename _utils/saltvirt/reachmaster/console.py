"""``virt.console``: a guest's serial console on the terminal of salt-run."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import termios
import time
from typing import Any

from saltvirt import errors, plain
from saltvirt.answers import reach
from saltvirt.fleet import asker
from saltvirt.fleet.client import Fleet
from saltvirt.operations import find, result
from saltvirt.reachmaster import terminal, way
from saltvirt.reachmaster.way import Way

# a hypervisor that is gone without a word is noticed after about so long
_IDLE_S, _BETWEEN_S, _DEAD_S = 10, 5, 30
# libvirt tells that a guest has stopped a moment after its console has ended
_STOPS_S = 3


def run(fleet: Fleet, name: str, force: bool, escape: str) -> dict[str, Any]:
    """Until the user has typed the escape, or the console has ended. Raises Refused, NotFound,
    ConnectionFailed, OperationFailed: it did not end by the escape; and as Fleet.one does."""
    mark = terminal.escape_byte(escape)
    if fleet.opts.get("__cli") != asker.COMMAND_LINE:
        raise errors.Refused("it is for a terminal: call salt-run on the master")
    own = terminal.own()
    found = way.opened(fleet, name, reach.SERIAL, force=force)
    fleet.rest()  # it may last for days
    with _connected(found) as line:
        how, why = _attached(line, own, mark, _greeting(found, own, escape))
    _tell(own, "")
    if how == terminal.ESCAPED:
        return result.done(name, f"left the console of {name} on {found.host}", host=found.host)
    raise errors.OperationFailed(why or _ended(fleet, found))


def _greeting(found: Way, own: terminal.Terminal, escape: str) -> str:
    size = own.size()
    return (
        f"The serial console of {found.guest} on {found.host}. {escape} leaves it (Ctrl and "
        f"{escape[1:]}). It has no size of its own; in the guest: stty rows {size.lines} cols "
        f"{size.columns}"
    )


def _connected(found: Way) -> ssl.SSLSocket:
    try:
        line = way.connected(found)
    except errors.VirtError as exc:
        if "somebody else" not in exc.text:
            raise
        raise type(exc)(f"{exc.text}; force=True takes it") from exc
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _BETWEEN_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_S * 1000)
    return line


def _attached(
    line: ssl.SSLSocket, own: terminal.Terminal, mark: bytes, greeting: str
) -> tuple[str | None, str | None]:
    """(how it ended, why, where that is known)."""
    try:
        with terminal.raw(own) as came:
            _tell(own, greeting)
            how = terminal.attach(line, own, mark, came)
    except termios.error:
        how = terminal.TERMINAL_ENDED
    except terminal.Ended as exc:
        return None, f"ended by {exc}"
    except OSError as exc:
        return None, f"the hypervisor is not reached any more: {exc.strerror or exc}"
    return how, "the terminal has gone" if how == terminal.TERMINAL_ENDED else None


def _ended(fleet: Fleet, found: Way) -> str:
    """Why a console ended that nobody here has left: where is the guest now?"""
    name, until = found.guest, time.monotonic() + _STOPS_S
    has_ended = f"the console of {name} on {found.host} has ended"
    while True:
        try:
            host, state = find.locate(fleet, name)
        except errors.VirtError as exc:
            return f"{has_ended}: {exc.text}"
        if host != found.host:
            return f"{has_ended}: the guest is on {host} now ({state})"
        if state != "running":
            return f"{has_ended}: the guest is {state}"
        if time.monotonic() > until:
            return f"{has_ended}, and the guest runs: somebody else took it, or it was started anew"
        time.sleep(1)


def _tell(own: terminal.Terminal, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(own.shown, f"{plain.line(text)}\r\n".encode())
