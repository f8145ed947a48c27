"""``virt.console``: a guest's serial console on the terminal of salt-run."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import termios
import time
from typing import Any

from saltvirt import errors, sanitize
from saltvirt.answers import reach
from saltvirt.console.master import guest_connection, terminal
from saltvirt.console.master.guest_connection import GuestConnection
from saltvirt.fleet import requester
from saltvirt.fleet.client import Fleet
from saltvirt.operations.cluster import find
from saltvirt.operations.core import result

# keepalive: an unreachable hypervisor is detected after about this time
_KEEPALIVE_IDLE_S, _KEEPALIVE_S, _DEAD_TIMEOUT_S = 10, 5, 30
# libvirt reports that a guest has stopped shortly after its console has ended
_STOP_GRACE_S = 3


def run(fleet: Fleet, name: str, force: bool, escape: str) -> dict[str, Any]:
    """Connect the terminal until the user types the escape key or the console ends.

    Raises Refused, NotFound, ConnectionFailed, OperationFailed if the console ends without the
    escape key, and the errors of Fleet.one.
    """
    escape_char = terminal.escape_byte(escape)
    if fleet.opts.get("__cli") != requester.COMMAND_LINE:
        raise errors.Refused("virt.console needs a terminal: run salt-run on the master")
    tty = terminal.from_stdio()
    connection = guest_connection.request_relay(fleet, name, reach.SERIAL, force=force)
    fleet.disconnect()  # it may last for days
    with _connect(connection) as line:
        ending, reason = _attach(line, tty, escape_char, _greeting(connection, tty, escape))
    _print(tty, "")
    if ending == terminal.ESCAPED:
        return result.done(
            name, f"left the console of {name} on {connection.host}", host=connection.host
        )
    raise errors.OperationFailed(reason or _explain_end(fleet, connection))


def _greeting(connection: GuestConnection, tty: terminal.Terminal, escape: str) -> str:
    size = tty.size()
    return (
        f"The serial console of {connection.guest} on {connection.host}. Press {escape} to "
        f"leave it (Ctrl and {escape[1:]}). It does not know the size of your terminal; in "
        f"the guest, run: stty rows {size.lines} cols {size.columns}"
    )


def _connect(connection: GuestConnection) -> ssl.SSLSocket:
    try:
        line = guest_connection.connect(connection)
    except reach.InUse as exc:
        raise errors.OperationFailed(f"{exc.text}; to take it over, use force=True") from exc
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_TIMEOUT_S * 1000)
    return line


def _attach(
    line: ssl.SSLSocket, tty: terminal.Terminal, escape: bytes, greeting: str
) -> tuple[str | None, str | None]:
    """(how the session ended, the reason if it is known)."""
    try:
        with terminal.raw(tty) as signal_fd:
            _print(tty, greeting)
            ending = terminal.attach(line, tty, escape, signal_fd)
    except termios.error:
        ending = terminal.TERMINAL_ENDED
    except terminal.SignalReceived as exc:
        return None, f"ended by {exc}"
    except OSError as exc:
        return None, f"the hypervisor is unreachable: {exc.strerror or exc}"
    return ending, "the terminal has gone" if ending == terminal.TERMINAL_ENDED else None


def _explain_end(fleet: Fleet, connection: GuestConnection) -> str:
    """Explain, from the guest's current state, why the console ended without the escape key."""
    name, deadline = connection.guest, time.monotonic() + _STOP_GRACE_S
    has_ended = f"the console of {name} on {connection.host} has ended"
    while True:
        try:
            host, state = find.locate(fleet, name)
        except errors.VirtError as exc:
            return f"{has_ended}: {exc.text}"
        if host != connection.host:
            return f"{has_ended}: the guest is on {host} now ({state})"
        if state != "running":
            return f"{has_ended}: the guest is {state}"
        if time.monotonic() > deadline:
            return (
                f"{has_ended}, and the guest runs: another user has taken over the console, or "
                "the guest was restarted"
            )
        time.sleep(1)


def _print(tty: terminal.Terminal, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(tty.shown, f"{sanitize.one_line(text)}\r\n".encode())
