"""The minions below a master's syndics: it has neither their keys nor their connections, so who
they are is found out by asking. Who has answered once is kept in mind: when it does not answer now
it is silent, as any other host, and what it may have is in doubt."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import salt.utils.jid
import salt.utils.verify

from saltvirt.fleet import private, target

# one that has not answered for so long is forgotten
KEEP_S = 30 * 86400
# any minion can say that there is one more: of so many at most, those that answered last
MAX_HOSTS = 2000


def below(opts: dict[str, Any], host: str) -> bool:
    """Whether the host has another master, which is below this one."""
    return bool(opts.get("order_masters")) and host not in target.accepted(opts)


def known_hosts(client: Any, opts: dict[str, Any], expression: str) -> set[str]:
    """The ids of :func:`answering`, and those of the last 30 days; of ids that match."""
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
    """The ids of all minions that match and answer, those of the master itself among them.

    client: Salt's LocalClient. expression: a compound target. It takes ``syndic_wait`` seconds
    after the last answer, and at most ``timeout`` and ``syndic_wait`` in all.
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
            # any minion makes one up, and a host's id is part of paths here
            if isinstance(minion, str) and salt.utils.verify.valid_id(opts, minion):
                minions.add(minion)
                last = time.monotonic()
    finally:
        with contextlib.suppress(ValueError):  # 3006 raises when it is not subscribed
            client.event.unsubscribe(tag)
    return minions
