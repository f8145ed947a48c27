"""Wait until a new guest has really answered."""

import time

from saltvirt import errors
from saltvirt.fleet import target

KINDS = ("minion", "agent", "address")
PAUSE_S = 2
PING_S = 30


def check(kind):
    """The kind, when there is such a one. Raises InvalidInput."""
    if kind not in KINDS:
        raise errors.InvalidInput(f"wait_for {kind!r}: it is one of {', '.join(KINDS)}")
    return kind


def until(fleet, host, name, kind, timeout_s):
    """Returns the seconds it took until the guest answered.

    kind: ``minion`` (answers test.ping), ``agent`` (QEMU's guest agent tells an address),
    ``address`` (anybody knows an address of it).
    Raises OperationFailed after timeout_s; the guest is left as it is.
    """
    answers = _minion if kind == "minion" else _address
    began = time.monotonic()
    while time.monotonic() - began < timeout_s:
        if answers(fleet, host, name, kind):
            return time.monotonic() - began
        time.sleep(PAUSE_S)
    raise errors.OperationFailed(
        f"{name} runs on {host}, but its {kind} did not answer within {timeout_s:.0f} s"
    )


def _minion(fleet, _host, name, _kind):
    # a minion that is still starting is not asked: every question is a process in the guest,
    # and on a slow one they would pile up
    if name not in target.connected(fleet.opts, [name]):
        return False
    answer = fleet.gather([name], "test.ping", timeout_s=PING_S)[name]
    return answer.ok and answer.data is True


def _address(fleet, host, name, kind):
    known = fleet.one(host, "virt.guest_addresses", {"vm_": name}).get(name) or {}
    return any(
        nic.get("addresses") and (kind == "address" or nic.get("source") == "agent")
        for nic in known.values()
    )
