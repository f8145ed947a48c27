"""States that perform an action on a guest, or on all guests that match a pattern."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from saltvirt.errors import NotFound, OperationFailed, SaltException
from saltvirt.spec import values
from saltvirt.states.result import answer

if TYPE_CHECKING:
    from saltvirt.states.result import Answer, StateHost

OFF = "shutdown"


def matching(host: StateHost, pattern: str) -> list[str]:
    """The guests that match a shell pattern on the host; a name matches itself."""
    guest_names: list[str] = host.call("list_domains")
    matches = [pattern] if pattern in guest_names else fnmatch.filter(guest_names, str(pattern))
    if not matches:
        raise NotFound(f"no guest of this host matches {pattern}")
    return matches


def state_of(host: StateHost, name: str) -> str:
    """The state of a guest: ``running``, ``paused``, ``shutdown`` and others."""
    return str(host.call("vm_state", name)[name])


def each(
    host: StateHost,
    pattern: str,
    act: Callable[[str], dict[str, Any] | None],
    section: str,
    action: str,
) -> Answer:
    """Call ``act(name)`` for every guest that matches the pattern, and return the answer.

    act: returns the guest's ``changes``, or None if nothing was done. If it fails for a guest, it
    is still called for the others. section: the key in ``changes``. action: past participle for the
    comment.
    """
    changed_guests: list[dict[str, Any]] = []
    failures: list[object] = []
    for name in matching(host, pattern):
        try:
            change = act(name)
        except SaltException as exc:
            failures.append(exc)
        else:
            changed_guests += [{"domain": name, **change}] if change else []
    names = ", ".join(entry["domain"] for entry in changed_guests)
    comment = f"{'would be ' * host.test}{action}: {names}" if changed_guests else ""
    if not changed_guests and not failures:
        comment = f"nothing to be {action}"
    return answer(
        pattern, {section: changed_guests} if changed_guests else {}, comment, host.test, failures
    )


def stopped(host: StateHost, name: str, timeout: object, force: object) -> Answer:
    """See ``virt.stopped``."""
    timeout_s = values.number(0, 86400)(timeout, "timeout")
    pull = bool(values.boolean(force, "force"))
    running = [guest for guest in matching(host, name) if state_of(host, guest) != OFF]
    if len(running) > 1 and not host.test:  # the guests shut down in parallel
        for guest in running:
            with contextlib.suppress(SaltException):
                host.call("shutdown", guest)

    def act(guest: str) -> dict[str, Any] | None:
        if guest not in running:
            return None
        if not host.test:
            _stop(host, guest, timeout_s, pull)
        return {"shutdown": True}

    return each(host, name, act, "stopped", "shut down")


def _stop(host: StateHost, guest: str, timeout_s: float, force: bool) -> None:
    try:
        host.call("shutdown", guest, timeout=timeout_s)
    except SaltException:
        if not force:
            raise
        host.call("stop", guest)


def powered_off(host: StateHost, name: str) -> Answer:
    """See ``virt.powered_off``."""

    def act(guest: str) -> dict[str, Any] | None:
        if state_of(host, guest) == OFF:
            return None
        return {"stop": host.test or host.call("stop", guest)}

    return each(host, name, act, "unpowered", "powered off")


def rebooted(host: StateHost, name: str) -> Answer:
    """See ``virt.rebooted``."""

    def act(guest: str) -> dict[str, Any] | None:
        if host.test and state_of(host, guest) != "running":
            raise OperationFailed(f"cannot reboot {guest}: domain is not running")
        return {"reboot": host.test or host.call("reboot", guest)}

    return each(host, name, act, "rebooted", "rebooted")


def no_guests(host: StateHost, name: str) -> Answer:
    """See ``virt.no_guests``."""
    running_guests = host.call("running_names")
    if running_guests:
        return answer(name, failures=[f"Running guests: {', '.join(running_guests)}"])
    return answer(name, comment="No guest is running")
