"""The engine with all that it needs, in the process that Salt began for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import saltvirt
from saltvirt import errors, program
from saltvirt.fleet.answer import Answer
from saltvirt.fleet.client import Fleet
from saltvirt.hamaster import config, credentials, files, seen
from saltvirt.hamaster.engine import Engine, World
from saltvirt.hamaster.fencer import Fencer
from saltvirt.hamaster.rooms import Ask, Rooms, again, last, read, write
from saltvirt.hamaster.seen import boot_time
from saltvirt.hamaster.talker import AgentsTalker
from saltvirt.operations import held, inventory
from saltvirt.placement import facts, policy

log = logging.getLogger(__name__)

# so often it looks whether its certificate is to be renewed, or a host's was revoked
RENEW_S = 600

# of the library, what the agents' program is made of
AGENT = "haagent.__main__"

Bus = Callable[[str, dict[str, Any]], None]


def serve(opts: held.Opts, bus: Bus, stop: threading.Event, ask: Ask | None = None) -> None:
    """Until it is stopped. ask: what asks the hosts for their room.

    Raises VirtError for settings or files that are wrong, and where another engine runs.
    """
    found = config.of_master(opts)
    misplaced = files.settle(opts)
    with files.locked(seen.lock(opts), "the engine virt_ha"):
        seen.path(opts).unlink(missing_ok=True)  # an engine before this one wrote it
        own = credentials.ensure(opts, found.name)
        known = told_before(last(opts))
        rooms = Rooms(ask or _asking(opts), found.members, boot_time, again(opts), known)
        talker = AgentsTalker(found, own)
        rules = program.digest(next(iter(saltvirt.__path__)), AGENT)
        world = World(talker, Fencer(found.members), rooms, bus, program=rules)
        engine = Engine(opts, found, policy.of_master(opts), world)
        engine.misplaced = misplaced
        threading.Thread(target=_renewing, args=(opts, found, stop), daemon=True).start()
        try:
            rooms.begin()
            talker.begin(engine.inbox.hear)
            engine.run(stop)
        finally:
            rooms.end()
            talker.end()


def told_before(path: Path) -> list[facts.Host]:
    """The hosts as they told an engine before this one."""
    found = [inventory.told(Answer(name, data)) for name, data in read(path).items()]
    return [one for one in found if isinstance(one, facts.Host)]


def _asking(opts: held.Opts) -> Ask:
    path = last(opts)
    told_last = read(path)

    def ask(members: Collection[str]) -> Iterator[facts.Host]:
        with Fleet(opts) as fleet:
            known = set(fleet.hosts()) & set(members)
            for answer in fleet.ask(sorted(known), "virt.inventory"):
                told = inventory.told(answer)
                if isinstance(told, facts.Host):
                    told_last[answer.host] = answer.data
                    yield told
                else:
                    log.info("%s: its room is not known anew: %s", answer.host, told)
        write(path, told_last)

    return ask


def _renewing(opts: held.Opts, found: config.HaConfig, stop: threading.Event) -> None:
    while not stop.wait(RENEW_S):
        try:
            credentials.ensure(opts, found.name)
        except (errors.VirtError, OSError) as exc:
            log.error("the certificate of this master for high availability: %s", exc)
