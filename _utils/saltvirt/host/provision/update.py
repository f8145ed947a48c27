"""Bringing an existing guest to what is wanted: the differences, and nothing else."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.design import domain, identity
from saltvirt.design.plain import plain
from saltvirt.design.put import is_given
from saltvirt.design.source import places
from saltvirt.diff import changes, pending
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import creation, lookup, metadata, resize, saved_memory
from saltvirt.host.provision import (
    admission,
    disk_notes,
    disks,
    firmware,
    guest_definition,
    hotplug,
    kernels,
    macs,
    reservation,
)
from saltvirt.host.provision.disk_match import DiskMatch
from saltvirt.placement import account
from saltvirt.revert import Revert
from saltvirt.spec.cpu import CpuSpec
from saltvirt.spec.memory import MemorySpec
from saltvirt.xml.disk import Disk
from saltvirt.xml.domain import Domain

if TYPE_CHECKING:
    from saltvirt.design.context import Given
    from saltvirt.diff.change import Change
    from saltvirt.host.provision.disk_match import Detach
    from saltvirt.host.provision.disk_notes import Note
    from saltvirt.host.provision.disks import Work
    from saltvirt.host.provision.guest_builder import Tools
    from saltvirt.host.provision.reservation import GrowthReservation
    from saltvirt.placement import facts
    from saltvirt.placement.facts import PlacementRequest
    from saltvirt.spec.guest import GuestSpec

# plain libvirt takes no lock of ours: what it changes meanwhile is compared with again
ATTEMPTS = 3
_KINDS = {"disks": "disk", "nics": "interface", "host_devices": "hostdev"}
_DONE = {"attach": "attached", "detach": "detached", "medium": "updated", "update": "updated"}


def stored(dom: libvirt.virDomain) -> Domain:
    """The guest's definition for its next start, with passwords."""
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    return Domain.fromstring(dom.XMLDesc(flags))


def _running(dom: libvirt.virDomain) -> Domain:
    """The definition that the guest runs with, with passwords."""
    return Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE))


@dataclass(frozen=True)
class How:
    """live: also on the running guest. detach: which disks go that the request does not name: none,
    all but the one that the guest boots from, or those of these names or targets. test: only say
    what would change."""

    live: bool = True
    detach: Detach = False
    test: bool = False


class Update:
    """One update of one guest."""

    def __init__(self, conn: libvirt.virConnect, spec: GuestSpec, tools: Tools, how: How) -> None:
        self.conn = conn
        self.spec = spec
        self.how = how
        self.tools = tools
        self.dom = lookup.lookup(conn, spec.name)
        creation.require_complete(self.dom, "update")
        if not self.dom.isPersistent():
            raise errors.Unsupported(f"{spec.name} is transient: it has no definition to update")
        self.actual = stored(self.dom)
        self.caps = guest_definition.caps_of(conn, self.actual)
        self.works: list[Work] = []
        self.sizes: dict[str, tuple[int, int]] = {}
        self.warnings: list[str] = []
        self.wanted = self.actual
        # what the running guest lacks of what is asked for, and what of it can be done now
        self.running = self.actual
        self.found: list[Change] = []
        self.lacking: list[Change] = []
        self.now: list[Change] = []
        self.slow = False  # the balloon was asked for memory
        images_dir, saltenv = tools.admission_config.images_dir, spec.deploy.saltenv
        self.kernels = kernels.place(spec.boot, images_dir, saltenv)

    def compare(self) -> list[Change]:
        """The list of Change; changes nothing on the host."""
        match = self.match_disks()
        given = guest_definition.given(self.conn, self.spec, self.works)
        self.match_nics(given)
        if match:
            given.sources.update(match.sources)
            given.disk_targets, given.leaving = match.targets, match.leaving
        self.wanted = domain.amend(self.spec, self.actual, self.caps, given, self.warnings)
        firmware.refuse_other(self.spec.name, self.actual, self.wanted, self.caps)
        autostart = (self.spec.autostart, bool(self.dom.autostart()))
        active = bool(self.dom.isActive())
        live = self.how.live and active
        self.found = found = changes.changes(
            self.wanted, self.actual, live, self.sizes, autostart, given.removed
        )
        if match:
            match.refuse_replaced(found, self.wanted)
        if active:
            self.running = _running(self.dom)
            self.lacking = pending.lacking(self.running, self.wanted)
            self.now = self.for_now() if live else []
        return found

    def for_now(self) -> list[Change]:
        """What of that which the running guest lacks is done now."""
        may = [one for one in self.lacking if self.may_do(one)]
        # without its place nothing can come
        stay = {one.path for one in self.lacking if one.action == "detach" and one not in may}
        return [one for one in may if one.path not in stay]

    def may_do(self, change: Change) -> bool:
        """Whether a change is made on the running guest: one that libvirt can make, of what the
        request speaks of. It takes memory and disks away only if the request says so."""
        if not change.live or change.what not in self.spoken_of():
            return False
        if change.path == pending.MEMORY and (change.new or 0) < (change.old or 0):
            return is_given(self.spec.memory.current_kib)
        if change.what == "disks" and change.action == "detach":
            return self.may_detach(change)
        return not self.is_seed_drive(change)

    def may_detach(self, change: Change) -> bool:
        """Whether a disk is taken from the running guest: one that this very request takes out of
        the definition, or one that an earlier request did. The one that the guest boots from goes
        only if ``detach`` names it."""
        target = change.path.partition(":")[2]
        name = identity.running_disk_names(self.running, self.actual).get(target)
        if any(self.is_same_disk(one, change, name) for one in self.found if one.live):
            return True
        if not isinstance(self.how.detach, bool):
            return bool({target, name} & {*self.how.detach})
        boots = identity.boot_disk(self.running)
        return self.how.detach and (boots is None or boots.target != target)

    def is_same_disk(self, leaving: Change, change: Change, name: str | None) -> bool:
        """Whether a disk that leaves the definition is the one at its target in the running guest,
        which may not have released another one. name: of the one in the running guest."""
        if leaving.path != change.path or leaving.action != "detach":
            return False
        disks = [Disk.fromstring(one.xml) for one in (leaving, change)]
        known = identity.disk_names(self.actual).get(disks[0].target or "")
        return bool(places(disks[0]) & places(disks[1])) or (known is not None and known == name)

    def spoken_of(self) -> set[str]:
        """The groups of changes that the request can cause."""
        spec = self.spec
        groups = {
            "cpu": spec.cpu != CpuSpec(), "mem": spec.memory != MemorySpec(),
            "disks": spec.disks is not None, "controllers": spec.disks is not None,
            "nics": spec.nics is not None, "graphics": spec.graphics is not None,
            "host_devices": spec.host_devices is not None, "title": spec.title is not None,
            "description": spec.description is not None,
        }  # fmt: skip
        return {what for what, spoken in groups.items() if spoken}

    def is_seed_drive(self, change: Change) -> bool:
        """Whether a change is of the drive with our volume for cloud-init, which the guest empties
        when it has read it."""
        made = {own.path for own in self.actual.record.disks}
        return change.action == "medium" and change.new in made

    def is_active(self) -> bool:
        """Whether the guest runs, so that something can wait for its next start."""
        return self.running is not self.actual

    def left(self, failures: Collection[str]) -> list[Change]:
        """What the guest still lacks when the changes were made."""
        if not self.dom.isActive():
            return []
        self.slow = not failures and any(one.path == pending.MEMORY for one in self.now)
        return pending.lacking(_running(self.dom), stored(self.dom))

    def waiting(self, left: Collection[Change]) -> list[Change]:
        """What of that waits for the next start: a balloon that was asked takes its time."""
        return [one for one in left if not (self.slow and one.path == pending.MEMORY)]

    def shown(self, left: Collection[Change], test: bool) -> list[Change]:
        """The changes of the definition, each with whether the running guest has it, and those that
        the guest lacked though its definition had them."""
        lacks, now, defined = ({one.path for one in some} for some in (left, self.now, self.found))
        paths = {one.path for one in self.waiting(left)}
        done = []
        for change in self.found:
            has = change.live or change.path in now or pending.is_plain(change.path)
            live = self.is_active() and has and change.path not in paths
            done.append(change if _is_apart(change) else replace(change, live=live))
        for change in self.now:
            unsure = test and change.path == pending.MEMORY  # a balloon may never give it back
            if change.path not in defined and change.path not in lacks and not unsure:
                done.append(change)
        return done

    def match_disks(self) -> DiskMatch | None:
        """Which disks are meant; None where the request does not speak of disks."""
        named = not isinstance(self.how.detach, bool)
        if self.spec.disks is None and not (named and self.how.detach):
            return None
        self.spec.disks = self.spec.disks or []
        folder = self.tools.admission_config.disks_in
        args = (self.actual, self.spec.disks, self.how.detach, folder)
        running = _running(self.dom) if self.dom.isActive() else None
        match = DiskMatch(self.conn, self.dom, *args, running)
        self.works, self.sizes = match.works, match.sizes
        self.warnings.extend(match.warnings)
        return match

    def match_nics(self, given: Given) -> None:
        """How interfaces get their MACs, and which of them have got theirs by their names."""
        chosen = macs.ForGuest(self.conn, self.actual, self.spec.nics or ())
        given.mac, given.nic_names = chosen.mac, chosen.names()
        self.warnings.extend(macs.also_of(self.conn, self.spec.name, self.spec.nics or ()))

    def record(self) -> None:
        """Has libvirt store our record where nothing else differs, and the running guest have it,
        too."""
        record = self.wanted.record
        now = [stored(self.dom).record, metadata.of_domain(self.dom)]
        if record and any(plain(one) != plain(record) for one in now):
            metadata.write(self.dom, record)

    def apply(self, found: list[Change]) -> list[str]:
        """Makes the changes; a list of what failed on the running guest, as sentences.

        What is stored for the next start is changed whole or not at all.
        """
        if found:
            self.admit()
            self.fetch()
            self.stored(found)
        apart = [one for one in found if _is_apart(one)]
        return hotplug.apply(self.conn, self.dom, self.wanted, [*self.now, *apart])

    def stored(self, found: list[Change]) -> None:
        """Has libvirt store the changes for the next start."""
        undo = Revert()
        try:
            with translated():
                self.store(found, undo)
        except errors.VirtError as exc:
            if not undo.failed:
                raise
            raise type(exc)(f"{exc}; could not undo: {'; '.join(undo.failed)}") from exc

    def store(self, found: list[Change], undo: Revert) -> None:
        """Makes the disks and defines the guest with them: all of it, or nothing."""
        made = [work for work in self.works if work.make]
        with undo:
            note = disk_notes.Note(self.spec.name, "virt.update", made) if made else None
            if note:
                undo.push("forget what was made", lambda: note.end(undo.failed))
            room = self.make(made, undo, note) if note else None
            with self.tools.admission_config.lock():
                self.unchanged()
                if room is None:
                    self.admit()
                if any(change.action != "resize" for change in found):
                    undo.push("define it as it was", self.conn.defineXML, self.actual.tostring())
                    self.dom = lookup.define(self.conn, self.wanted.tostring())
                if room is not None:
                    room.release()
            undo.success()
        if note:
            note.end()

    def make(self, works: list[Work], undo: Revert, note: Note) -> GrowthReservation:
        """Makes disks, which may take long: others are admitted meanwhile. Returns the
        reservation of their room."""
        request, now = self.requests()
        kib = account.promised_kib(request) - account.promised_kib(now)
        places = [(os.path.dirname(path), size) for path, size in disks.folder_bytes(works)]
        places += disks.pool_bytes(works).items()
        with self.tools.admission_config.lock():
            self.unchanged()
            self.admit()
            room = reservation.GrowthReservation(
                self.spec.name, kib, request.vcpus - now.vcpus, places
            )
            undo.push("take back the promised room", room.release)
        with disks.images_unchanged(works):
            for work in works:
                disks.make(self.conn, work, undo, room.renew, note=note)
        return room

    def requests(self) -> tuple[PlacementRequest, PlacementRequest]:
        """placement's PlacementRequest for the guest as it is to be, and as it is."""
        wanted = admission.request_of(self.wanted, self.works)
        return wanted, admission.request_of(self.actual)

    def unchanged(self) -> None:
        """Raises Changed when somebody has changed the definition since it was compared."""
        if stored(self.dom).tostring() != self.actual.tostring():
            raise Changed(
                f"{self.spec.name} is being changed by somebody else, by libvirt: nothing was "
                "done; call it again"
            )

    def admit(self) -> None:
        """Raises Refused when the host has no room for what the guest gets more."""
        disks.not_in_use(self.conn, self.works, self.spec.name)
        request, now = self.requests()
        more = {
            "memory": account.promised_kib(request) > account.promised_kib(now)
            or request.page_kib != now.page_kib,
            "vcpu": request.vcpus > now.vcpus,
            "bridges": request.bridges - now.bridges,
            "networks": request.networks - now.networks,
            "disk": self.works or self.sizes,
            "pools": self.works or self.sizes,
        }
        asked = [name for name, wanted in more.items() if wanted]
        if asked:
            request = replace(request, disks=(*request.disks, *self.grown()))
            admission.check(self.conn, self.tools.admission_config, request, new=False, only=asked)

    def grown(self) -> Iterator[facts.Disk]:
        """What the disks that are there get more, as facts.Disk."""
        for disk in self.actual.disks:
            if disk.target in self.sizes:
                before, after = self.sizes[disk.target]
                place = resize.place(disk.source, after - before)
                if place.path or place.pool:
                    yield place

    def fetch(self) -> None:
        """Gets the images of new disks, and kernels."""
        kernels.fetch(self.kernels, self.tools)
        for work in self.works:
            if work.make and work.spec.image:
                work.image = self.tools.image(self.conn, work.spec)
                disks.fits(work)


class Changed(errors.OperationFailed):
    """The definition is another by now than the one that the changes were found for."""


def _is_apart(change: Change) -> bool:
    """Whether a change is made the same way on a guest that runs and on one that is off."""
    return change.what in ("autostart", "metadata") or change.action == "resize"


def result(
    found: list[Change], failures: list[str], warnings: Collection[str] = ()
) -> dict[str, Any]:
    """What virt.update returns for a list of Change, of failures and of warnings."""
    status: dict[str, Any] = {
        "definition": bool(found),
        "disk": {"attached": [], "detached": [], "updated": []},
        "interface": {"attached": [], "detached": [], "updated": []},
    }
    for change in found:
        kind = _KINDS.get(change.what)
        if kind and change.action in _DONE:
            entry = status.setdefault(kind, {"attached": [], "detached": [], "updated": []})
            if change.xml not in entry[_DONE[change.action]]:
                entry[_DONE[change.action]].append(change.xml)
        elif change.what in ("cpu", "mem"):
            status[change.what] = True
    status["changes"] = [change.show() for change in found]
    if failures:
        status["errors"] = failures
    if warnings:
        status["warnings"] = list(warnings)
    return status


def update(conn: libvirt.virConnect, spec: GuestSpec, tools: Tools, how: How) -> dict[str, Any]:
    """Brings the guest of a GuestSpec to what it says; see ``virt.update``."""
    with translated(f"update {spec.name}"):
        if how.test:
            return _once(conn, spec, tools, how)
        with tools.admission_config.guest("virt.update", spec.name):
            creation.require_complete(lookup.lookup(conn, spec.name), "update")
            disk_notes.remove(conn, spec.name)
            reservation.forget(spec.name)
            for _ in range(ATTEMPTS - 1):
                with contextlib.suppress(Changed):
                    return _once(conn, copy.deepcopy(spec), tools, how)
            return _once(conn, spec, tools, how)


def _once(conn: libvirt.virConnect, spec: GuestSpec, tools: Tools, how: How) -> dict[str, Any]:
    work = Update(conn, spec, tools, how)
    found = work.compare()
    if found and saved_memory.exists(work.dom):
        work.warnings.append(
            f"{spec.name} has saved memory: its next start resumes that memory with the definition "
            "it was saved with, and what is changed holds from the start after that; to discard "
            f"that memory, type 'virsh managedsave-remove {spec.name}'"
        )
    if how.test:
        if found:
            work.admit()
            tools.look(conn, work.works)
        failures, left = list[str](), [one for one in work.lacking if one not in work.now]
    else:
        failures = work.apply(found) if found or work.now else []
        work.record()
        left = work.left(failures)
    shown = work.shown(left, how.test)
    status = result(shown, failures, work.warnings)
    if work.is_active():
        paths = {one.path for one in left}
        more = [one for one in shown if not (one.live or one.path in paths or _is_apart(one))]
        pending.tell(status, [*work.waiting(left), *more])
    return status
