"""The agent's program: ``python3 -m saltvirt.haagent``, or the archive of ``virt.ha_install``.

ha-agent.pyz [--settings FILE]     the service
ha-agent.pyz --check               whether it can be run here, by the settings if there are any
ha-agent.pyz pool FOLDER HOST      a part of the service; so is definitions FOLDER HOST
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from typing import NoReturn

from saltvirt import errors
from saltvirt.haagent import memory, pools, service, settings, shelf
from saltvirt.host import connection

# sysexits.h: systemd does not start it again
CONFIG = 78


def main(words: list[str]) -> int:
    """Its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    parts = {"pool": pools.serve, shelf.FOLDER: shelf.serve}
    if words and words[0] in parts:
        parts[words[0]](words[1], words[2], sys.stdin.buffer, sys.stdout.buffer)
        return 0
    top = argparse.ArgumentParser(prog="ha-agent")
    top.add_argument("--settings", default=settings.PATH)
    top.add_argument("--check", action="store_true")
    given = top.parse_args(words)
    try:
        connection.require_binding()
        if given.check and not os.path.exists(given.settings):
            return 0
        found = settings.read(given.settings)
        if not given.check:
            run(found)
        return 0
    except errors.VirtError as exc:
        logging.error("%s", exc)
        return CONFIG


def run(found: settings.AgentSettings) -> NoReturn:
    """The service until it ends; anew, in the same process, when it is told to."""
    memory.lock()
    one = service.Service(found)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, one.on_signal)
    how = one.run()
    one.close()
    if how == service.AGAIN:
        program = os.path.abspath(sys.argv[0])
        own = [program] if program.endswith(".pyz") else ["-m", "saltvirt.haagent"]
        os.execv(sys.executable, [sys.executable, *own, *sys.argv[1:]])
    logging.shutdown()
    os._exit(0)  # threads that wait for libvirt must not delay it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
