"""The program of the agent: ``python3 -m saltvirt.ha.agent``, or the archive of
``virt.ha_install``.

ha-agent.pyz [--settings FILE]   run the service
ha-agent.pyz --check             check whether it can run here, with the settings if there are
                                 any, and with the files of the previous agent
ha-agent.pyz pool FOLDER HOST    run a worker of the service; also: definitions FOLDER HOST
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import logging.handlers
import os
import queue
import signal
import sys
from typing import NoReturn

import saltvirt
from saltvirt import errors
from saltvirt.ha.agent import (
    instances,
    memory,
    pool_heartbeat,
    service,
    settings,
    shared_definitions,
    trial,
)
from saltvirt.ha.agent.install import MODULE
from saltvirt.ha.agent.store import AgentStore
from saltvirt.host import connection
from saltvirt.system import boot, zipapp

# from sysexits.h: systemd does not restart the service
CONFIG = 78
# maximum number of log records that wait; further ones are dropped
_MAX_LOG_LINES = 1000


def main(arguments: list[str]) -> int:
    """Run the program and return its exit code."""
    # Salt may have installed handlers of its own
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr, force=True
    )
    workers = {"pool": pool_heartbeat.serve, shared_definitions.FOLDER: shared_definitions.serve}
    if arguments and arguments[0] in workers:
        workers[arguments[0]](arguments[1], arguments[2], sys.stdin.buffer, sys.stdout.buffer)
        return 0
    parser = argparse.ArgumentParser(prog="ha-agent")
    parser.add_argument("--settings", default=settings.PATH)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    try:
        connection.require_binding()
        if options.check and not os.path.exists(options.settings):
            return 0
        agent_settings = settings.read(options.settings)
        if options.check:
            check(agent_settings)
        else:
            run(agent_settings, options.settings)
        return 0
    except errors.VirtError as exc:
        logging.error("%s", exc)
        return CONFIG if options.check else _end(settings.AgentSettings.run)


def _end(run_folder: str) -> int:
    """Return CONFIG, so that systemd does not restart the agent, unless its watchdog may be
    armed."""
    return 1 if AgentStore("", run_folder, boot.current()).may_be_armed() else CONFIG


def check(agent_settings: settings.AgentSettings) -> None:
    """Raise BadAnswer if this version cannot read a file of the agent."""
    try:
        AgentStore(agent_settings.state, agent_settings.run, boot.current()).check()
        instances.check(f"{agent_settings.run}/guests.json")
    except OSError as exc:
        raise errors.OperationFailed(f"cannot read {exc.filename}: {exc.strerror}") from exc


class _LossyHandler(logging.handlers.QueueHandler):
    """A queue handler that drops records if the reader of the log is too slow, so that heartbeats
    do not wait."""

    def enqueue(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(queue.Full):
            self.queue.put_nowait(record)


def _log_in_background() -> None:
    """Write the log on a thread of its own from now on."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(_MAX_LOG_LINES)
    root = logging.getLogger()
    logging.handlers.QueueListener(lines, *root.handlers).start()
    root.handlers = [_LossyHandler(lines)]


def run(agent_settings: settings.AgentSettings, path: str) -> NoReturn:
    """Run the service until it ends; run it again in the same process if requested. path: of its
    settings."""
    memory.lock()
    archive = os.path.abspath(sys.argv[0])
    code_path = archive if archive.endswith(".pyz") else next(iter(saltvirt.__path__))
    agent = service.Service(
        agent_settings, trial=trial.fault, program=zipapp.digest(code_path, MODULE)
    )
    with contextlib.suppress(OSError):
        trial.record_running(agent_settings.run, archive, path)
    _log_in_background()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, agent.on_signal)
    exit_reason = agent.run()
    agent.close()
    if exit_reason == service.RESTART:
        os.execv(sys.executable, trial.command())
    logging.shutdown()
    os._exit(0)  # threads that wait for libvirt must not delay the exit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
