"""The minions below a master's syndics.

The master has neither their keys nor their connections, so it finds them by asking. It remembers
the minions that have answered: if one of them does not answer now, it is unreachable like any other
host, and may have guests.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import salt.utils.jid
import salt.utils.verify

from saltvirt.fleet import private, target

# a minion that has not answered for this time is forgotten
KEEP_S = 30 * 86400
# any minion can invent others: the maximum number to remember, those that answered last
MAX_HOSTS = 2000


def below(opts: dict[str, Any], host: str) -> bool:
    """Return whether the host belongs to another master below this one."""
    return bool(opts.get("order_masters")) and host not in target.accepted(opts)


def known_hosts(client: Any, opts: dict[str, Any], expression: str) -> set[str]:
    """Return the ids of :func:`answering`, and of the last 30 days, if they match the target."""
    path, now = Path(opts["cachedir"]) / "virt" / "below", time.time()
    last_seen_s = {name: seen_s for name, seen_s in _read(path).items() if now - seen_s < KEEP_S}
    responding = answering(client, opts, expression)
    last_seen_s.update(dict.fromkeys(responding - set(target.accepted(opts)), now))
    last_seen_s = dict(sorted(last_seen_s.items(), key=lambda entry: entry[1])[-MAX_HOSTS:])
    private.write(str(path), json.dumps(last_seen_s))
    return {name for name in {*responding, *last_seen_s} if target.may_match(opts, name)}


def _read(path: Path) -> dict[str, float]:
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, AttributeError):
        data = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): float(seen_s) for name, seen_s in data.items()}
    return {}


def answering(client: Any, opts: dict[str, Any], expression: str) -> set[str]:
    """Return the ids of all minions that match and answer, including the master's own.

    client: Salt's LocalClient. expression: a compound target. Waits ``syndic_wait`` seconds after
    the last answer, and at most ``timeout`` plus ``syndic_wait`` in total.
    """
    jid = salt.utils.jid.gen_jid(opts)
    tag = f"salt/job/{jid}/ret/"
    minions: set[str] = set()
    quiet_s = float(opts.get("syndic_wait", 5))
    client.event.subscribe(tag)
    try:
        client.pub(expression, "test.ping", [], tgt_type="compound", jid=jid, listen=True)
        last = time.monotonic()
        end = last + float(opts["timeout"]) + quiet_s
        while time.monotonic() < min(end, last + quiet_s):
            event = client.event.get_event(wait=0.2, tag=tag, full=True)
            minion = event["data"].get("id") if event else None
            # any minion can invent an id, and ids are used in paths
            if isinstance(minion, str) and salt.utils.verify.valid_id(opts, minion):
                minions.add(minion)
                last = time.monotonic()
    finally:
        with contextlib.suppress(ValueError):  # 3006 raises if it is not subscribed
            client.event.unsubscribe(tag)
    return minions
