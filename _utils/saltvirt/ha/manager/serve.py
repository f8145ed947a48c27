"""Run the engine, with everything that it needs, in the process that Salt started for it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import saltvirt
from saltvirt import errors
from saltvirt.fleet.client import Fleet
from saltvirt.ha.manager import config, credentials, files, status_file
from saltvirt.ha.manager.agent_sender import AgentSender
from saltvirt.ha.manager.engine import Engine, EngineContext
from saltvirt.ha.manager.fencer import FenceAgentPool
from saltvirt.ha.manager.inventory_poller import (
    Ask,
    InventoryPoller,
    cache_path,
    read,
    refresh_path,
    write,
)
from saltvirt.ha.manager.status_file import boot_time
from saltvirt.operations.cluster import inventory
from saltvirt.placement import facts, policy
from saltvirt.placement.calls import INVENTORY, InventoryRequest
from saltvirt.system import file_lock, zipapp

log = logging.getLogger(__name__)

# interval of checks for the renewal of its certificate, and for revoked certificates
RENEW_S = 600

# the module of the agents' program
AGENT = "ha.agent.__main__"

SendEvent = Callable[[str, dict[str, Any]], None]


def serve(
    opts: file_lock.Opts, send_event: SendEvent, stop: threading.Event, ask: Ask | None = None
) -> None:
    """Run until stopped. ask: asks the hosts for their capacity.

    Raises VirtError if settings or files are invalid, or if another engine is running.
    """
    ha_config = config.of_master(opts)
    path_warning = files.move_folder(opts)
    with files.locked(status_file.lock_path(opts), "the engine virt_ha"):
        status_file.report_path(opts).unlink(missing_ok=True)  # written by a previous engine
        peer_credentials = credentials.ensure(opts, ha_config.name)
        previous_hosts = cached_hosts(cache_path(opts))
        poller = InventoryPoller(
            ask or _make_ask(opts), ha_config.members, boot_time, refresh_path(opts), previous_hosts
        )
        sender = AgentSender(ha_config, peer_credentials)
        program_digest = zipapp.digest(next(iter(saltvirt.__path__)), AGENT)
        context = EngineContext(
            sender, FenceAgentPool(ha_config.members), poller, send_event, program=program_digest
        )
        engine = Engine(opts, ha_config, policy.of_master(opts), context)
        engine.path_warning = path_warning
        threading.Thread(
            target=_renew_credentials, args=(opts, ha_config, stop), daemon=True
        ).start()
        try:
            poller.begin()
            sender.begin(engine.inbox.receive)
            engine.run(stop)
        finally:
            poller.end()
            sender.end()


def cached_hosts(path: Path) -> list[facts.Host]:
    """Return the hosts as they reported to a previous engine."""
    hosts = []
    for name, data in read(path).items():
        with contextlib.suppress(errors.BadAnswer):
            hosts.append(inventory.checked_host(name, facts.Inventory.from_answer(data, name)))
    return [host for host in hosts if isinstance(host, facts.Host)]


def _make_ask(opts: file_lock.Opts) -> Ask:
    path = cache_path(opts)
    answers = read(path)

    def ask(members: Collection[str]) -> Iterator[facts.Host]:
        with Fleet(opts) as fleet:
            reachable = set(fleet.hosts()) & set(members)
            for answer in INVENTORY.replies(fleet, sorted(reachable), InventoryRequest()):
                host = (
                    inventory.checked_host(answer.host, answer.get()) if answer.ok else answer.error
                )
                if isinstance(host, facts.Host):
                    answers[answer.host] = answer.get().to_answer()
                    yield host
                else:
                    log.info("%s: cannot update its capacity: %s", answer.host, host)
        write(path, answers)

    return ask


def _renew_credentials(
    opts: file_lock.Opts, ha_config: config.HaConfig, stop: threading.Event
) -> None:
    while not stop.wait(RENEW_S):
        try:
            credentials.ensure(opts, ha_config.name)
        except (errors.VirtError, OSError) as exc:
            log.error("the certificate of this master for high availability: %s", exc)
