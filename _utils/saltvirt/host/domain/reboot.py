"""Reboot a guest through its system. libvirt's event proves that it happened."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lifecycle, lookup

_WAKE_MS = 250


@contextlib.contextmanager
def _reboots(uri: str, name: str) -> Iterator[list[str]]:
    """Yield a list that gets an entry for each reboot of the guest while libvirt's events are
    processed. They need a connection of their own."""
    reported: list[str] = []
    libvirt.virEventRegisterDefaultImpl()
    timer = libvirt.virEventAddTimeout(_WAKE_MS, lambda _timer, _opaque: None, None)
    try:
        with contextlib.closing(libvirt.openReadOnly(uri)) as events:
            dom = events.lookupByName(name)
            kind = libvirt.VIR_DOMAIN_EVENT_ID_REBOOT
            callback = events.domainEventRegisterAny(
                dom, kind, lambda _conn, _dom, _opaque: reported.append(name), None
            )
            try:
                yield reported
            finally:
                events.domainEventDeregisterAny(callback)
    finally:
        libvirt.virEventRemoveTimeout(timer)


def reboot(
    conn: libvirt.virConnect, name: str, timeout_s: float, before_request: Callable[[], object]
) -> None:
    """Ask the guest's system to reboot until it does, or until the guest is off, because it does
    not start again after a reboot. The request is repeated, because a booting system ignores it.

    before_request: is called before each request. Raises OperationFailed if the guest has not
    rebooted in time.
    """
    dom = lookup.lookup(conn, name)
    end = time.monotonic() + timeout_s
    with connection.translated(f"reboot {name}"), _reboots(conn.getURI(), name) as reported:
        while time.monotonic() < end and not reported:
            before_request()
            if not _requested(dom):
                return
            deadline = min(end, time.monotonic() + lifecycle.PRESS_AGAIN_S)
            while time.monotonic() < deadline and not reported:
                libvirt.virEventRunDefaultImpl()
                if not dom.isActive():
                    return
    if not reported:
        raise errors.OperationFailed(
            f"{name} has not rebooted within {timeout_s:.0f} s: its operating system ignores the "
            "request, or needs more time; virt.reset resets it without asking"
        )


def _requested(dom: libvirt.virDomain) -> bool:
    """Send one request; return False if the guest is off."""
    try:
        lifecycle.reboot(dom)
    except errors.VirtError:
        if dom.isActive():
            raise
        return False
    return True
