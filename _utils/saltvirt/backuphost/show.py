"""Shows a backup to the one hypervisor that restores it: a program of its own, which outlives the
job that began it and ends when nobody reads any more."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, places, program
from saltvirt.backuphost import daemon, layers, relay
from saltvirt.backuphost.target import Target
from saltvirt.backups import ident
from saltvirt.backups.answers import ShownBackup, ShownDisk
from saltvirt.doors import Door
from saltvirt.images import locks, tools
from saltvirt.wire import Fact

MODULE = "backuphost.show"
_RUN = f"{places.RUN}/backups"
# so long nobody may be connected
IDLE_S = 120
_LOOK_S = 2
_BEGINS_S = 60


@dataclass(frozen=True)
class ShowRequest(Fact):
    """What is shown: a backup in a folder. door: where, and to whom."""

    folder: str
    uuid: str
    ident: str
    door: Door


def show(library: str, asked: ShowRequest, host: str) -> ShownBackup:
    """Shows it. library: the folder of the package saltvirt. host: how this machine is called in
    its certificate. Raises NotFound, BadAnswer for a backup that is not good, OperationFailed."""
    target = Target(asked.folder)
    stock = target.stock(asked.uuid)
    name = ident.find(stock.backups, asked.ident)
    wrong = stock.wrong(name)
    found = stock.backups[name].record
    if wrong or found is None:
        raise errors.BadAnswer(f"the backup {name} is not good: {wrong}")
    definition = target.definition(found)
    port = _begun(library, replace(asked, ident=name))
    disks = tuple(ShownDisk(one.target, one.size_bytes) for one in found.disks)
    authority = asked.door.credentials.authority
    return ShownBackup(name, found.guest, host, port, definition, disks, authority)


def _begun(library: str, asked: ShowRequest) -> int:
    """The port on which the program shows it."""
    process = subprocess.Popen(
        [sys.executable, program.kept(library, MODULE, locks.private(places.RUN))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=tools.environment(), cwd="/", start_new_session=True,
    )  # fmt: skip
    with tools.pipe(process.stdin) as stdin:
        stdin.write(json.dumps(asked.to_answer()).encode())
    stdout = tools.pipe(process.stdout)
    line = stdout.readline() if select.select([stdout], [], [], _BEGINS_S)[0] else b""
    try:
        said = json.loads(line)
    except ValueError as exc:
        process.kill()
        process.wait()
        raise errors.OperationFailed("the program that shows the backup died") from exc
    if "error" in said:
        raise errors.OperationFailed(said["error"])
    return int(said["port"])


def main(_words: list[str]) -> int:
    """The program: a ShowRequest on its standard input; one line on its standard output."""
    asked = ShowRequest.from_answer(json.load(sys.stdin), "what is to be shown")
    try:
        target = Target(asked.folder)
        with target.using(asked.uuid, asked.ident) as found:
            disks = [layers.of(target, found, one).shown(one.target) for one in found.disks]
            # what a process that died left of such folders is removed on the way
            folder, _in_use = locks.private_folder(_RUN, "show-")
            path = os.path.join(folder, "nbd")
            server = daemon.begin(disks, path)
            door = relay.begin(asked.door, path)
            _say({"port": door.port})
            _keep(server, door)
            shutil.rmtree(folder, ignore_errors=True)
    except errors.VirtError as exc:
        _say({"error": exc.text})
        return 1
    return 0


def _keep(server: daemon.Server, door: relay.Relay) -> None:
    """Until nobody has read for a while."""
    last_s = time.monotonic()
    while server.lives and time.monotonic() - last_s < IDLE_S:
        time.sleep(_LOOK_S)
        if door.is_read:
            last_s = time.monotonic()
    door.end()
    server.end()


def _say(data: dict[str, Any]) -> None:
    print(json.dumps(data), flush=True)
