"""Start, stop and pause domains. Each function verifies the resulting state with libvirt."""

from __future__ import annotations

import time
from collections.abc import Callable

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import lookup

PRESS_AGAIN_S = 10
_STEP_S = 0.25
CTRL_ALT_DEL = (29, 56, 111)  # Linux key codes


def _confirm(dom: libvirt.virDomain, action: str, *expected: str) -> bool:
    state = lookup.state(dom)
    if state not in expected:
        raise errors.OperationFailed(
            f"cannot {action} {dom.name()}: libvirt accepted the command, but its state is {state}"
        )
    return True


def start(dom: libvirt.virDomain, paused: bool = False) -> bool:
    """Start a defined domain. True when libvirt shows it running (or paused)."""
    with connection.translated(f"start {dom.name()}"):
        dom.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)
        return _confirm(dom, "start", "paused" if paused else "running", "paused")


def shutdown(dom: libvirt.virDomain, timeout_s: float = 0) -> bool:
    """Ask the guest's system to power down. True when the request was delivered.

    timeout_s: wait at most this time until libvirt shows the guest off. The request is repeated,
    because a booting system ignores it. Raises OperationFailed if the guest is not off by then.
    """
    name = dom.name()
    if timeout_s and lookup.state(dom) == "paused":
        raise errors.OperationFailed(
            f"cannot shut down {name}: it is paused; run virt.resume first"
        )
    if not timeout_s:
        with connection.translated(f"shut down {name}"):
            dom.shutdown()
            return True
    if off_within(dom, timeout_s):
        return True
    raise errors.OperationFailed(
        f"{name}: no response to ACPI shutdown within {timeout_s} s: its operating "
        "system ignores it, or needs more time; virt.stop powers it off"
    )


def off_within(
    dom: libvirt.virDomain, timeout_s: float, before_request: Callable[[], object] = lambda: None
) -> bool:
    """Ask the guest's system to power down until it is off; return whether it is off in time.

    The request is repeated, because a booting system ignores it. before_request: is called before
    each request.
    """
    end = time.monotonic() + timeout_s
    with connection.translated(f"shut down {dom.name()}"):
        while True:
            before_request()
            if not _press_power(dom, min(end, time.monotonic() + PRESS_AGAIN_S)):
                return True
            if time.monotonic() >= end:
                return False


def _press_power(dom: libvirt.virDomain, end: float) -> bool:
    """Send one request and wait; return whether the domain is still active."""
    try:
        dom.shutdown()
        while dom.isActive() and time.monotonic() < end:
            time.sleep(_STEP_S)
        return bool(dom.isActive())
    except libvirt.libvirtError as exc:
        gone_codes = (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN)
        if exc.get_error_code() in gone_codes and not _active(dom):
            return False
        raise


def _active(dom: libvirt.virDomain) -> bool:
    """Return whether the domain runs; a transient domain disappears when it stops."""
    try:
        return bool(dom.isActive())
    except libvirt.libvirtError:
        return False


def stop(dom: libvirt.virDomain) -> bool:
    """Switch the guest off. True when libvirt shows it off, or it was transient and is gone."""
    with connection.translated(f"stop {dom.name()}"):
        persistent = dom.isPersistent()
        dom.destroy()
        return _confirm(dom, "stop", "shutdown", "crashed") if persistent else True


def pause(dom: libvirt.virDomain) -> bool:
    """Pause the guest's CPUs. True when libvirt shows it paused."""
    with connection.translated(f"pause {dom.name()}"):
        dom.suspend()
        return _confirm(dom, "pause", "paused")


def resume(dom: libvirt.virDomain) -> bool:
    """Resume a paused or suspended guest. True when libvirt shows it running."""
    with connection.translated(f"resume {dom.name()}"):
        if lookup.state(dom) == "pmsuspended":
            dom.pMWakeup()
        else:
            dom.resume()
        return _confirm(dom, "resume", "running")


def reboot(dom: libvirt.virDomain) -> bool:
    """Ask the guest's system to reboot. True when the request was delivered."""
    with connection.translated(f"reboot {dom.name()}"):
        dom.reboot(libvirt.VIR_DOMAIN_REBOOT_DEFAULT)
    return True


def reset(dom: libvirt.virDomain) -> bool:
    """Reset the guest. True when it is active afterwards."""
    with connection.translated(f"reset {dom.name()}"):
        dom.reset(0)
        return _confirm(dom, "reset", "running", "paused")


def ctrl_alt_del(dom: libvirt.virDomain) -> bool:
    """Send the three keys to the guest's keyboard. True when they were delivered."""
    with connection.translated(f"send keys to {dom.name()}"):
        dom.sendKey(libvirt.VIR_KEYCODE_SET_LINUX, 0, list(CTRL_ALT_DEL), len(CTRL_ALT_DEL), 0)
    return True


def set_autostart(dom: libvirt.virDomain, on: bool) -> bool:
    """Set whether the guest starts with the host. True when libvirt confirms it."""
    with connection.translated(f"set autostart of {dom.name()}"):
        dom.setAutostart(1 if on else 0)
        if bool(dom.autostart()) != bool(on):
            raise errors.OperationFailed(f"{dom.name()}: libvirt did not set the autostart flag")
    return True


def on_off(value: object) -> bool:
    """Convert ``on``/``off`` (or YAML's interpretation of them) to a bool. Raises InvalidInput."""
    text = str(value).lower()
    if text in ("on", "true"):
        return True
    if text in ("off", "false"):
        return False
    raise errors.InvalidInput(f"state {value!r} must be on or off")
