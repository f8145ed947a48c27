"""The process that is the minions of all hosts: Salt's own channels, a pair for each.

    python -m tests.swarm.minions PLAN

PLAN is a file of JSON: `hosts` (name to `kind`, `address` and `guests`), `config` (a minion's
configuration file), `folder`. It says `ready` when all minions are there, and answers each line
that it reads: `guests` with what the hosts have, `told` with how many questions they were asked.
"""

import asyncio
import json
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import salt.channel.client
import salt.config
import salt.utils.args

from tests.swarm import host
from tests.swarm.kinds import DEAD, HUNG, SLOW, SLOW_S

MASTER = "10.77.0.1"
THREADS = 16
# signs of life, which a slow host gives at once: its minion is at work, and not asleep
_AT_ONCE = ("virt.working", "saltutil.find_job")


class Minion:
    """Salt's side of a host. about: it, of the plan. config: any minion's configuration. told: of
    every question."""

    def __init__(self, name, about, config, folder, others, functions, cloud):
        self.kind, self.cloud, address = about["kind"], cloud, about["address"]
        mine = folder / name
        (mine / "images").mkdir()
        opts = {
            **config, "id": name, "cachedir": str(mine), "pki_dir": str(mine / "pki"),
            "sock_dir": str(mine), "source_ip": address, "master": MASTER, "master_ip": MASTER,
            "master_uri": f"tcp://{address}:0;{MASTER}:{config['master_port']}",
            "virt": {
                "connection": {"uri": f"test://{mine}/node.xml"}, "lock": str(mine / "lock"),
                "images": str(mine / "images"),
            },
        }  # fmt: skip
        self.host = host.Host(name, opts, about["guests"], others, functions, self.send_event)
        self.host.grains = {
            "id": name, "ipv4": ["127.0.0.1", address], "ipv6": ["::1"], "os": "Debian",
            "virt_host": {"hypervisor": True, "type": "kvm"},
        }  # fmt: skip
        self.opts = opts

    async def start(self):
        """As a minion does: its key, its pillar, its connection. One that is dead leaves then."""
        self.asks = salt.channel.client.AsyncReqChannel.factory(self.opts, io_loop=self.cloud.loop)
        load = {
            "cmd": "_pillar", "id": self.host.name, "grains": self.host.grains, "saltenv": None,
            "pillarenv": None, "pillar_override": {}, "extra_minion_data": {}, "ver": "2",
        }  # fmt: skip
        await self.asks.crypted_transfer_decode_dictentry(load, dictkey="pillar")
        if self.kind == DEAD:
            await self.asks.close_async()
            return
        self.hears = salt.channel.client.AsyncPubChannel.factory(
            self.opts, io_loop=self.cloud.loop, host=MASTER
        )
        await self.hears.connect()
        self.hears.on_recv(self.heard)

    async def heard(self, payload):
        """A job, perhaps for this host."""
        load = payload["load"]
        names = load["tgt"].split(",") if isinstance(load["tgt"], str) else load["tgt"]
        if load.get("tgt_type") != "list" or self.host.name not in names:
            return
        self.cloud.told += 1
        if self.kind != HUNG:
            job = self.cloud.loop.create_task(self.do(load))
            self.cloud.jobs.add(job)
            job.add_done_callback(self.cloud.jobs.discard)

    async def do(self, load):
        """Do a job and return what came of it."""
        jid, fun = load["jid"], load["fun"]
        self.host.jobs[jid] = {"pid": os.getpid(), "jid": jid, "fun": fun, "tgt": load["tgt"]}
        arguments, named = _split(load["arg"])
        try:
            if self.kind == SLOW and named.get("fun", fun) not in _AT_ONCE:
                await asyncio.sleep(SLOW_S)
            if fun in ("virt.answer", "virt.answers"):
                named["__pub_jid"] = jid
            returned, retcode = await self.cloud.loop.run_in_executor(
                self.cloud.pool, self.host.call, fun, arguments, named
            )
        finally:
            del self.host.jobs[jid]
        await self.asks.send({
            "cmd": "_return", "id": self.host.name, "jid": jid, "fun": fun, "fun_args": load["arg"],
            "return": returned, "retcode": retcode, "success": not retcode,
        })  # fmt: skip

    def send_event(self, tag, data=None):
        """Salt's ``event.send``, from a thread that does a job."""
        load = {
            "cmd": "_minion_event", "id": self.host.name, "tag": tag, "pretag": None,
            "data": {**(data or {}), "__pub_fun": "event.send"},
        }  # fmt: skip
        asyncio.run_coroutine_threadsafe(self.asks.send(load), self.cloud.loop).result()
        return True


def _split(given):
    """(arguments, arguments by name) of a published job."""
    arguments, named = [], {}
    for one in given:
        if isinstance(one, dict) and one.get("__kwarg__"):
            named.update({key: value for key, value in one.items() if key != "__kwarg__"})
        else:
            arguments.append(one)
    return arguments, named


class Cloud:
    """All minions. plan: see above."""

    def __init__(self, plan, loop):
        self.loop, self.told, self.jobs = loop, 0, set()
        self.pool = ThreadPoolExecutor(THREADS, initializer=host.begin_thread)
        config = salt.config.minion_config(plan["config"])
        functions, others = host.library(Path(plan["folder"]) / "run"), {}
        self.minions = [
            Minion(
                name, one, config, Path(plan["folder"]), others, functions, self,
            )
            for name, one in plan["hosts"].items()
        ]  # fmt: skip
        others.update({one.host.name: one.host for one in self.minions})

    async def run(self):
        """Until the end of what it reads."""
        for first in range(0, len(self.minions), THREADS):
            await asyncio.gather(*(one.start() for one in self.minions[first : first + THREADS]))
        print("ready", flush=True)
        while True:
            line = await self.loop.run_in_executor(None, sys.stdin.readline)
            if not line:
                os._exit(0)
            answers = {"guests": self.guests, "told": lambda: self.told}
            print(json.dumps(answers[line.strip()]()), flush=True)

    def guests(self):
        """Host to its guests, of all hosts."""
        return {one.host.name: one.host.guests() for one in self.minions}


async def main(plan):
    logging.basicConfig(level=logging.WARNING)
    await Cloud(plan, asyncio.get_running_loop()).run()


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
