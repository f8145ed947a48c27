"""A guest runs at once from a backup that the machine of the target shows: its disks are overlays
on that, and their blocks come in meanwhile (``standing``)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.answers.made import Made
from saltvirt.backuphost import apart
from saltvirt.backups.answers import ShownBackup, ShownDisk
from saltvirt.backups.stands import CUT, GONE, OFF, PULLING, WHOLE, Standing
from saltvirt.backupserve import standing
from saltvirt.backupserve.over import Over
from saltvirt.backupserve.restore import FORMAT, Restore, sync
from saltvirt.backupserve.standing import STOP, KeepRequest
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import guest_lock, lookup, stands
from saltvirt.host.domain.stands import Stood
from saltvirt.host.provision import disks
from saltvirt.images import tools as programs
from saltvirt.xml.disk import Disk
from saltvirt.xml.disk_backing import BackingStore
from saltvirt.xml.disk_source import DiskSource, SourceHost
from saltvirt.xml.metadata import GuestRecord

_ENDS_S = 10


@dataclass(frozen=True)
class How:
    """library: the folder of the package saltvirt. asked: what its keeper has to know.
    bandwidth_mib_s: so much is pulled in at most; None: as fast as it goes."""

    library: str
    asked: KeepRequest
    bandwidth_mib_s: int | None = None


class FromBackup(Restore):
    """What is different of a guest that runs at once. Set ``how``."""

    how: How

    def check(self) -> None:
        standing.socket_of(self.guest.name)
        if self.guest.seed:
            raise errors.Unsupported(
                f"{self.guest.name} would run at once with the identity of its original: give "
                "instant=False, or seed=False if the original is off for good"
            )
        if stands.of(self.guest.name):
            raise errors.Refused(
                f"{self.guest.name} stands on a backup already: virt.backup_instant shows it"
            )
        self.policies: dict[str, tuple[str, ...]] = {}
        super().check()

    def work(self, disk: ShownDisk, path: str) -> disks.Work:
        return replace(super().work(disk, path), write=self._overlay(disk))

    def point(self, record: GuestRecord, disk: Disk, path: str) -> None:
        super().point(record, disk, path)
        target = str(disk.target)
        self.policies.setdefault(target, standing.policies(disk))
        # what cannot be read now can be later: the guest must see no error
        disk.error_policy = disk.rerror_policy = STOP
        disk.backing_store = backing(self.guest.name, target)

    def _overlay(self, disk: ShownDisk) -> Callable[[str], object]:
        def write(path: str) -> None:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self.claim(path)
            below = f"nbd+unix:///{disk.target}?socket={standing.socket_of(self.guest.name)}"
            # it is not there yet: nothing is read
            argv = ["qemu-img", "create", "-q", "-u", "-f", FORMAT, "-b", below, "-F", "raw", path]
            programs.run([*argv, str(disk.size_bytes)], f"make the disk {path}")
            sync(path)

        return write

    def start(self) -> None:
        self.stand()
        super().start()

    def stand(self) -> None:
        """The backup is shown to the guest's QEMU from now on."""
        self.tools.say("show", f"{self.shown.host} shows the backup {self.shown.ident}")
        self.undo.push("show the backup no more", _end, self.guest.name)
        self.note()
        begin(self.how)

    def note(self) -> None:
        """Puts down on what the guest stands."""
        stands.put(
            Stood(
                self.guest.name, self.dom.UUIDString(), self.shown.ident, self.shown.host,
                self.shown.port, self.shown.authority,
                tuple(work.spec.name or "" for work in self.works), self.how.bandwidth_mib_s,
                self.policies,
            )
        )  # fmt: skip


class Instant(FromBackup):
    """A guest that was not there."""


class InstantOver(FromBackup, Over):
    """One in the place of a guest."""

    def _switch(self, state: dict[str, bytes]) -> None:
        # before its definition stands on the backup: who is killed in between leaves one of which
        # it is known on which it stands, so that it can be shown again
        self.undo.push("forget on what it stands", stands.forget, self.guest.name)
        self.note()
        super()._switch(state)

    def make(self) -> Made:
        super().make()
        self.start()
        return self.result(None)


def begun(how: How, parts: tuple[Any, ...], last: tuple[Any, ...]) -> FromBackup:
    """What makes one. parts: the first arguments of a Restore. last: those after them, of an Over
    two, else one."""
    conn, guest, *more = parts
    kind: type[Any] = Instant if len(last) == 1 else InstantOver
    found: FromBackup = kind(conn, replace(guest, start=True), *more, *last)
    found.how = how
    return found


def backing(guest: str, target: str) -> BackingStore:
    """What such a disk stands on, as libvirt is told."""
    where = SourceHost(transport="unix", socket=standing.socket_of(guest))
    source = DiskSource(protocol="nbd", name=target)
    source.hosts.append(where)
    found = BackingStore(type="network", format="raw")
    found.source = source
    found.need().append(ElementTree.Element("backingStore"))
    return found


def begin(how: How) -> None:
    """Raises OperationFailed where the backup cannot be shown here."""
    apart.begin(how.library, standing.MODULE, how.asked, "the program that shows the backup here")


def _end(name: str) -> None:
    """Nothing is shown here any more, and the guest stands on nothing that is known."""
    end_keeper(name)
    stands.forget(name)


def end_keeper(name: str) -> None:
    """Ends the process that shows the backup here. Raises OperationFailed where it does not end."""
    deadline = time.monotonic() + _ENDS_S
    sign = signal.SIGTERM
    while (pid := stands.keeper(name)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)
        if time.monotonic() > deadline:
            if sign == signal.SIGKILL:
                raise errors.OperationFailed(f"process {pid} does not end")
            sign, deadline = signal.SIGKILL, time.monotonic() + _ENDS_S
        time.sleep(0.1)


def again(conn: libvirt.virConnect, how: How, name: str, shown: ShownBackup) -> Standing:
    """The backup on which the guest stands is shown anew. Raises NotFound, OperationFailed."""
    with guest_lock.held(how.asked.locks, "virt.backup_again", name):
        stood = stands.of(name)
        if stood is None:
            raise errors.NotFound(f"{name} stands on no backup here")
        if stood.ident != shown.ident:
            raise errors.BadAnswer(f"{name} stands on {stood.ident}, shown is {shown.ident}")
        end_keeper(name)
        stands.put(
            replace(stood, host=shown.host, port=shown.port, authority=shown.authority,
                    bandwidth_mib_s=how.bandwidth_mib_s)
        )  # fmt: skip
        begin(how)
    return look(conn, name)


def look(conn: libvirt.virConnect, name: str, locks: str | None = None) -> Standing:
    """How far the guest is. What stands on nothing any more is forgotten. locks: of the guests;
    then OperationFailed is raised of one that is just made: it will need the backup."""
    at_work = guest_lock.owners(locks).get(name, "") if locks else ""
    found = _look(conn, name)
    if found.state in (GONE, WHOLE) and at_work.startswith(Restore.VERB):
        raise errors.OperationFailed(f"{name} is being made here, {at_work}: wait for it")
    return found


def _look(conn: libvirt.virConnect, name: str) -> Standing:
    with translated(f"look at {name}"):
        stood, dom = stands.of(name), lookup.find(conn, name)
        keeper = stands.keeper(name)
        if dom is None or (stood and dom.UUIDString() != stood.uuid):
            if stood and keeper is None:
                stands.forget(name)
            return Standing(GONE, stood.ident if stood else None)
        left = standing.standing(name, ElementTree.fromstring(dom.XMLDesc(0)))
        if not left:
            if stood and keeper is None:
                stands.forget(name)
            return Standing(WHOLE, stood.ident if stood else None, 100)
        if stood is None:
            return Standing(CUT, why=f"what is in {stands.FOLDER} of it is gone")
        percents = {one: _percent(dom, one, left) for one in stood.disks}
        found = Standing(
            OFF, stood.ident, min(percents.values(), default=0), at_error(dom), disks=percents
        )
        return _told(dom, stood, found, left[0], keeper)


def at_error(dom: libvirt.virDomain) -> bool:
    """Whether the guest waits for a block that could not be read."""
    return bool(dom.isActive()) and standing.at_error(dom)


def _told(
    dom: libvirt.virDomain, stood: Stood, found: Standing, target: str, keeper: int | None
) -> Standing:
    if keeper is None:
        why = "the process that showed it here is gone"
        return replace(found, state=CUT if dom.isActive() else OFF, why=why)
    if not dom.isActive():
        return found
    waits = found.paused or not dom.blockJobInfo(target, 0)
    if waits and (hidden := standing.hidden(stood)):
        return replace(found, state=CUT, why=hidden)
    return replace(found, state=PULLING)


def _percent(dom: libvirt.virDomain, target: str, left: list[str]) -> int:
    if target not in left:
        return 100
    info = dom.blockJobInfo(target, 0) if dom.isActive() else None
    return min(99, 100 * info["cur"] // info["end"]) if info and info["end"] else 0
