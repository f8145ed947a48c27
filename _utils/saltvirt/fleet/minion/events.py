"""Several events of a minion, told its master in one message."""

from __future__ import annotations

import logging
from typing import Any

import salt.utils.event
from salt.exceptions import SaltException

log = logging.getLogger(__name__)


def send_all(opts: dict[str, Any], events: list[tuple[str, dict[str, Any]]]) -> None:
    """Fires them on the master's bus, in their order, as ``event.send`` fires each.

    opts: the minion's. events: tags and data. What the minion cannot pass on is lost, as by
    ``event.send``.
    """
    messages = [{"tag": tag, "data": _as_single_event(opts, tag, data)} for tag, data in events]
    try:
        with salt.utils.event.MinionEvent(opts, listen=False) as bus:
            bus.fire_event({"events": messages, "data": None, "tag": None, "pretag": None},
                           "fire_master")  # fmt: skip
    except (OSError, SaltException) as exc:
        log.warning("%d events of steps were not sent: %s", len(events), exc)


def _as_single_event(opts: dict[str, Any], tag: str, data: dict[str, Any]) -> dict[str, Any]:
    """Of a single event a master fires the whole message, of several the data of each."""
    return {"id": opts["id"], "cmd": "_minion_event", "pretag": None, "data": data, "tag": tag}
