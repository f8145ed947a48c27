"""Send several events of a minion to its master in one message."""

from __future__ import annotations

import logging
from typing import Any

import salt.utils.event
from salt.exceptions import SaltException

log = logging.getLogger(__name__)


def send_all(opts: dict[str, Any], events: list[tuple[str, dict[str, Any]]]) -> None:
    """Fire events on the master's bus in their order, as ``event.send`` does for each.

    opts: of the minion. events: tags and data. Events that the minion cannot pass on are lost, as
    with ``event.send``.
    """
    messages = [{"tag": tag, "data": _as_single_event(opts, tag, data)} for tag, data in events]
    try:
        with salt.utils.event.MinionEvent(opts, listen=False) as bus:
            bus.fire_event({"events": messages, "data": None, "tag": None, "pretag": None},
                           "fire_master")  # fmt: skip
    except (OSError, SaltException) as exc:
        log.warning("%d events of steps were not sent: %s", len(events), exc)


def _as_single_event(opts: dict[str, Any], tag: str, data: dict[str, Any]) -> dict[str, Any]:
    """The data of an event in the form of a single one: for a single event, a master fires the
    complete message, for several the data of each."""
    return {"id": opts["id"], "cmd": "_minion_event", "pretag": None, "data": data, "tag": tag}
