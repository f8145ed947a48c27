"""Shows a backup to the one hypervisor that restores it: a program of its own, which outlives the
job that began it and ends when nobody reads any more."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from saltvirt import errors, places
from saltvirt.backuphost import apart, daemon, layers, relay, stands
from saltvirt.backuphost.target import Target
from saltvirt.backups import ident
from saltvirt.backups.answers import ShownBackup, ShownDisk
from saltvirt.backups.record import BackupDisk, Record
from saltvirt.backups.stands import Stand
from saltvirt.doors import Door
from saltvirt.images import locks
from saltvirt.units import shown
from saltvirt.wire import Fact

MODULE = "backuphost.show"
_RUN = f"{places.RUN}/backups"
# so long nobody may be connected
IDLE_S = 120
# the same where a guest stands on it, which is paused as long as it is cut off
STANDS_IDLE_S = 86_400
_LOOK_S = 2
# in the folder of what is shown: to whom
_READER = "reader"


@dataclass(frozen=True)
class ShowRequest(Fact):
    """What is shown: a backup in a folder. door: where, and to whom. stand: the guest that runs
    from it; None: it is only read. disk: this one alone; None: all. damaged: also if it is not
    good."""

    folder: str
    uuid: str
    ident: str
    door: Door
    stand: Stand | None = None
    disk: str | None = None
    damaged: bool = False

    def disks(self, target: Target, found: Record) -> list[BackupDisk]:
        """Those of the backup that are shown: of one that is damaged what can be opened."""
        chosen = (one for one in found.disks if self.disk in (None, one.target))
        return [one for one in chosen if self._is_shown(target, found, one)]

    def state(self, target: Target, found: Record) -> BackupDisk | None:
        """What the guest had beside its disks, if all of it is shown and it can be opened."""
        if self.disk or not found.state or not self._is_shown(target, found, found.state):
            return None
        return found.state

    def _is_shown(self, target: Target, found: Record, disk: BackupDisk) -> bool:
        if not self.damaged:
            return True
        if target.stock(found.uuid).unfit(found.ident, disk.target) is not None:
            return False
        try:
            layers.of(target, found, disk)
        except (errors.BadAnswer, errors.ImageError, errors.NotFound):
            return False
        return True


def show(library: str, asked: ShowRequest, host: str) -> ShownBackup:
    """Shows it. library: the folder of the package saltvirt. host: how this machine is called in
    its certificate. Raises NotFound, BadAnswer for a backup that is not good, OperationFailed."""
    target = Target(asked.folder)
    stock = target.stock(asked.uuid)
    name = ident.find(stock.backups, asked.ident, f"{asked.uuid} in {asked.folder}")
    found = stock.backups[name].record
    if asked.disk and found and asked.disk not in {one.target for one in found.disks}:
        raise errors.NotFound(f"the backup {name} has no disk {shown(asked.disk)}")
    wrong = stock.wrong_disk(name, asked.disk) if asked.disk else stock.wrong(name)
    if found is None or (wrong and not asked.damaged):
        raise errors.BadAnswer(f"the backup {name} is not good: {wrong}")
    chosen = asked.disks(target, found)
    if not chosen:
        why = wrong or "none of its files can be opened"
        raise errors.BadAnswer(f"nothing of the backup {name} can be read: {why}")
    definition = target.definition(found)
    port = _begun(library, replace(asked, ident=name))
    disks = tuple(ShownDisk(one.target, one.size_bytes) for one in chosen)
    authority = asked.door.credentials.authority
    about = (name, found.guest, host, port, definition, disks, authority)
    state = asked.state(target, found)
    more = ShownDisk(state.target, state.size_bytes) if state else None
    return ShownBackup(*about, damaged=asked.damaged, state=more)


def hide(reader: str) -> bool:
    """What is shown to one reader is shown no more, in some seconds; whether anything was."""
    ends, found = _digest(reader), False
    for path in glob.glob(f"{_RUN}/show-*/{_READER}"):
        with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as file:
            if file.read() == ends:
                os.unlink(path)
                found = True
    return found


def _digest(reader: str) -> str:
    return hashlib.sha256(reader.encode("utf-8", "surrogatepass")).hexdigest()


def _begun(library: str, asked: ShowRequest) -> int:
    """The port on which the program shows it."""
    return int(apart.begin(library, MODULE, asked, "the program that shows the backup")["port"])


def main(_words: list[str]) -> int:
    """The program: a ShowRequest on its standard input; one line on its standard output."""
    asked = ShowRequest.from_answer(json.load(sys.stdin), "what is to be shown")
    try:
        target = Target(asked.folder)
        with (
            target.using(asked.uuid, asked.ident) as found,
            locks.for_now(_RUN, "show-") as folder,
        ):
            state = asked.state(target, found)
            chosen = [*asked.disks(target, found), *([state] if state else [])]
            disks = [layers.of(target, found, one).shown(one.target) for one in chosen]
            if asked.stand:
                stands.take(target, asked.uuid, asked.ident, asked.stand)
            path = os.path.join(folder, "nbd")
            server = daemon.begin(disks, path)
            mark = os.path.join(folder, _READER)
            with open(mark, "w", encoding="ascii") as file:
                file.write(_digest(asked.door.credentials.reader))
            door = relay.begin(asked.door, path)
            apart.say({"port": door.port})
            _keep(server, door, lambda: os.path.exists(mark) and _is_stood_on(target, asked),
                  STANDS_IDLE_S if asked.stand else IDLE_S)  # fmt: skip
    except errors.VirtError as exc:
        apart.say({"error": exc.text})
        return 1
    return 0


def _keep(
    server: daemon.Server, door: relay.Relay, is_wanted: Callable[[], bool], idle_s: float
) -> None:
    """Until nobody has read for a while, or it is not wanted any more."""
    last_s = time.monotonic()
    while server.lives and time.monotonic() - last_s < idle_s and is_wanted():
        time.sleep(_LOOK_S)
        if door.is_read:
            last_s = time.monotonic()
    door.end()
    server.end()


def _is_stood_on(target: Target, asked: ShowRequest) -> bool:
    if asked.stand is None:
        return True
    found = stands.of(target, asked.uuid, asked.ident)
    return stands.UNREADABLE in found or any(one.is_of(asked.stand) for one in found)
