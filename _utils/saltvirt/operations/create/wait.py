"""Wait until a new guest has answered."""

from __future__ import annotations

import time
from typing import Any

from saltvirt import errors
from saltvirt.answers.guest_calls import LIST_ADDRESSES, NamedGuestRequest
from saltvirt.fleet import syndic, target
from saltvirt.fleet.answer import FAILED
from saltvirt.fleet.client import Fleet

KINDS = ("minion", "agent", "address")
PAUSE_S = 2
PING_S = 30
# ping interval and timeout for a minion whose connection the master does not see (behind NAT)
ASK_S, BRIEF_S = 20, 5


def check(kind: str) -> None:
    """Raise InvalidInput for an unknown kind."""
    if kind not in KINDS:
        raise errors.InvalidInput(f"wait_for {kind!r}: must be one of {', '.join(KINDS)}")


def wait_for_answer(fleet: Fleet, host: str, name: str, kind: str, timeout_s: float) -> float:
    """Return after how many seconds the guest answered.

    kind: ``minion`` (answers test.ping), ``agent`` (QEMU's guest agent reports an address),
    ``address`` (any source knows an address). Raises OperationFailed after timeout_s; the guest
    stays as it is.
    """
    answers = _Minion().answers if kind == "minion" else _address
    started_s: float = fleet.now()
    while fleet.now() - started_s < timeout_s:
        if answers(fleet, host, name, kind):
            took_s: float = fleet.now() - started_s
            return took_s
        time.sleep(PAUSE_S)
    raise errors.OperationFailed(
        f"{name} runs on {host}, but its {kind} did not answer within {timeout_s:.0f} s"
    )


class _Minion:
    """Waits for a minion, which is rarely pinged while it starts: each ping is a process in the
    guest, and on a slow guest these would pile up.

    Any minion can answer in its name, so the minion must also have contacted this master with its
    key, if the master caches that (``minion_data_cache``).
    """

    def __init__(self) -> None:
        self.last_ping_s: float | None = None

    def answers(self, fleet: Fleet, _host: str, name: str, _kind: str) -> bool:
        is_connected, now_s = name in target.connected(fleet.opts, [name]), fleet.now()
        if not is_connected and self.last_ping_s is not None and now_s - self.last_ping_s < ASK_S:
            return False
        self.last_ping_s = now_s
        timeout_s = PING_S if is_connected else BRIEF_S
        answer = fleet.gather([name], "test.ping", timeout_s=timeout_s, signed=False)[name]
        if not (answer.ok and answer.data is True):
            return False
        caches_data = fleet.opts.get("minion_data_cache", False)
        # a minion below a syndic reports to the syndic's master
        return (
            not caches_data or syndic.below(fleet.opts, name) or target.reported(fleet.opts, name)
        )


def _address(fleet: Fleet, host: str, name: str, kind: str) -> bool:
    nics = _addresses(fleet, host, name)
    return any(
        nic.get("addresses") and (kind == "address" or nic.get("source") == "agent")
        for nic in nics.values()
    )


def _addresses(fleet: Fleet, host: str, name: str) -> dict[str, Any]:
    """Return no address while the host does not answer: it is asked again."""
    answer = LIST_ADDRESSES.reply(fleet, host, NamedGuestRequest(name))
    if not answer.ok and answer.kind != FAILED:
        return {}
    return answer.get().get(name) or {}
