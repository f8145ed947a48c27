"""The minions below a master's syndics: it has neither their keys nor their connections, so who
they are is found out by asking."""

import contextlib
import time

import salt.utils.jid


def answering(client, opts, expression):
    """The ids of all minions that match and answer, those of the master itself among them.

    client: Salt's LocalClient. expression: a compound target. It takes ``syndic_wait`` seconds
    after the last answer, and at most ``timeout`` and ``syndic_wait`` in all.
    """
    jid = salt.utils.jid.gen_jid(opts)
    tag = f"salt/job/{jid}/ret/"
    found, quiet_s = set(), float(opts.get("syndic_wait", 5))
    client.event.subscribe(tag)
    try:
        client.pub(expression, "test.ping", [], tgt_type="compound", jid=jid, listen=True)
        last = time.monotonic()
        end = last + float(opts["timeout"]) + quiet_s
        while time.monotonic() < min(end, last + quiet_s):
            event = client.event.get_event(wait=0.2, tag=tag, full=True)
            if event and event["data"].get("id") and isinstance(event["data"]["id"], str):
                found.add(event["data"]["id"])
                last = time.monotonic()
    finally:
        with contextlib.suppress(ValueError):  # 3006 raises when it is not subscribed
            client.event.unsubscribe(tag)
    return found
