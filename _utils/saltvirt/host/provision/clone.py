"""A copy of a stopped guest: its definition and its own disks under a new name."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from saltvirt import errors, names
from saltvirt.design import identity
from saltvirt.design.domain import RECORD_VERSION
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import creation, lookup, metadata
from saltvirt.host.provision import admission, disks, macs, pool_disk, seed_drive, undo_disks
from saltvirt.host.provision.guest_builder import (
    GuestBuilder,
    become_another,
    interfaces_of_copy,
)
from saltvirt.host.storage import file_mark, files, unchanged_disks
from saltvirt.images import inspect
from saltvirt.images.clone import whole
from saltvirt.spec.disk import DiskSpec
from saltvirt.xml.domain import Domain
from saltvirt.xml.metadata import GuestRecord, OwnDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from saltvirt.answers.made import Made
    from saltvirt.host.provision.guest_builder import GuestRequest, Tools
    from saltvirt.xml.disk import Disk


_CHARACTERS = ("serial", "parallel", "console", "channel")


@dataclass(frozen=True)
class SourceDisk:
    """A disk that is copied: ``image.source`` is its address in the new guest's record."""

    path: str
    format: str
    virtual_size_bytes: int
    source: str
    files: tuple[str, ...]
    sha256: str | None = None


def _copied(disk: Disk) -> bool:
    """Whether a clone gets a disk of its own, rather than the same one again."""
    return bool(
        disk.device in (None, "disk") and disk.source and not (disk.read_only or disk.shareable)
    )


def _places(devices: Element) -> Iterator[str]:
    """What two guests cannot both use, in words: addresses and files of serial ports and the like,
    files of logs, devices of the host."""
    for node in (one for tag in _CHARACTERS for one in devices.findall(tag)):
        for source in node.findall("source"):
            address = f"{source.get('host', '')}:{source.get('service')}"
            place = source.get("path") or (address if source.get("service") else None)
            if place and source.get("mode") != "connect" and node.get("type") != "pty":
                yield f"the {node.get('type')} {place} of a serial port or channel"
        for log in node.findall("log"):
            yield f"the log {log.get('file')}"
    if devices.find("hostdev") is not None:
        yield "devices of the host"


class Clone(GuestBuilder):
    """A new guest from one that is there. original: the virDomain to copy."""

    VERB = "virt.clone"

    def __init__(
        self,
        conn: libvirt.virConnect,
        original: libvirt.virDomain,
        guest: GuestRequest,
        tools: Tools,
    ) -> None:
        super().__init__(conn, guest, tools)
        self.original, self.marks = original, file_mark.Marks()
        self.read()
        self.targets: dict[str, disks.Work] = {}

    def read(self) -> None:
        """Reads what is copied. An operation on the original changes it until we hold its lock."""
        secure = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE
        self.model = Domain.fromstring(self.original.XMLDesc(secure))
        self.new_macs = macs.fresh(self.conn, len(self.model.interfaces))

    @property
    def macs(self) -> dict[str, str]:
        """{MAC of an interface of the original, in lower case: MAC of the copy's}."""
        return macs.pairs(self.model.interfaces, self.new_macs)

    def check(self) -> None:
        self.tools.say("check", "checking what is to be copied")
        self.read()
        self.is_off()
        if self.guest.seed and not self.tools.seeder:
            raise errors.Unsupported("this host cannot seed: give seed=False")
        self.refuse_memory()
        for disk in self.model.disks:
            self.refuse_lun(disk)
            if _copied(disk):
                self.works.append(self.plan(disk))
            elif self.guest.seed and self.tools.reissue and self._is_volume(disk):
                self.works.append(self.plan_volume(disk))
        self.admit(self.definition())
        self.warn_of_same()

    def warn_of_same(self) -> None:
        """Tells of what the copy has in common with its original, and of what it does not have."""
        devices = self.model.need().find("devices")
        places = dict.fromkeys(_places(devices)) if devices is not None else {}
        old, new = self.original.name(), self.guest.name
        for place in places:
            self.tools.warn(f"{new} has {place} like {old}: change one of them before both run")
        if self.model.need().find("devices/tpm/backend[@type='emulator']") is not None:
            self.tools.warn(f"{new} has an empty TPM: what is sealed to that of {old} stays closed")

    def refuse_lun(self, disk: Disk) -> None:
        """Raises Unsupported for a LUN that the original drives by itself: the copy would write to
        the same one."""
        if disk.device == "lun" and not (disk.read_only or disk.shareable):
            raise errors.Unsupported(
                f"disk {disk.target} of {self.original.name()} is a LUN, {disk.source.place()}, "
                "which cannot be copied and would be written to by both guests: detach it, clone "
                "the guest, and attach it again"
            )

    def refuse_memory(self) -> None:
        """Raises Unsupported for memory that is kept in a file or device (NVDIMM, virtio-pmem): the
        copy would write to the same one, which libvirt and QEMU do not lock."""
        for path in self.model.need().iterfind("devices/memory/source/path"):
            raise errors.Unsupported(
                f"{self.original.name()} has memory that is kept in {path.text}, to which both "
                "guests would write: take it from the definition, and clone the guest"
            )

    def guests(self) -> list[str]:
        return [self.original.name(), self.guest.name]

    def is_off(self) -> None:
        """Raises Refused when the original runs, or sleeps with a part of its disks in memory;
        Incomplete when its creation has not ended."""
        creation.require_complete(self.original, "clone")
        name, state = self.original.name(), lookup.state(self.original)
        if state != "shutdown":
            raise errors.Refused(f"{name} is {state}: stop it first, so that its disks are whole")
        if self.original.hasManagedSaveImage():
            raise errors.Refused(
                f"{name} has saved memory, without which its disks are not whole: start it and "
                "shut it down first"
            )

    def make_disks(self) -> None:
        """Copies the disks while nobody writes to them. Plain libvirt takes no lock of ours."""
        sources = [work.image.path for work in self.works if work.image]
        with unchanged_disks.Unchanged(self.original.name(), sources) as unchanged:
            self.is_off()
            super().make_disks()
            self.copy_variables()
            self.is_off()
            unchanged.check()

    def copy_variables(self) -> None:
        """Copies the variables of the firmware: by a boot entry in them, and by nothing else, some
        systems are found."""
        old = files.variables_of(self.model.need())
        if not old or not files.is_regular(old):
            return
        new = files.variables_of(ElementTree.fromstring(self.dom.XMLDesc(0)))
        folder, name = os.path.split(old)
        own = f"{self.original.name()}_VARS."
        if new is None and name.startswith(own):  # libvirt chooses it at the first start
            new = os.path.join(folder, f"{self.guest.name}_VARS.{name[len(own) :]}")
        if not new:
            self.tools.warn(f"{self.guest.name} has new firmware variables, without boot entries")
            return
        if os.path.lexists(new):
            self.tools.warn(
                f"{self.guest.name} starts with the firmware variables in {new}, which an earlier "
                f"guest has left, not with those of {self.original.name()}: for new ones "
                "move that file away before the start"
            )
            return

        def copy(part: str) -> None:
            with open(old, "rb") as source, open(part, "wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())

        try:
            whole(new, copy)
        except OSError as exc:
            raise errors.OperationFailed(f"cannot copy {old} to {new}: {exc.strerror}") from exc
        self.undo.push(f"remove {new}", undo_disks.remove_file, new)

    def plan(self, disk: Disk) -> disks.Work:
        """The Work that copies one disk."""
        target = disk.target or ""
        path = disk.source.file or disk.source.dev
        pool, old = disk.source.pool, disk.source.volume
        if pool:
            path = files.volume_path(self.conn, pool, old)
        elif path and not files.is_regular(path):
            pool, old = pool_disk.place_of(self.conn, path)
        if not path or not (pool or files.is_regular(path)):
            raise errors.Unsupported(
                f"disk {disk.target} of {self.original.name()} is on {disk.source.place()}: only "
                "files and volumes of storage pools are copied"
            )
        format = disk.driver_type or "raw"
        found = inspect.inspect(path, format, folders=["/"])
        size = found.virtual_size_bytes
        spec = DiskSpec(name=target, device="disk", size_bytes=size, image=path)
        name = self.new_name(os.path.basename(old or path), target)
        if pool:
            spec.pool, spec.source_file = pool, name
            xen = self.model.type == "xen"
            gone = self.leftover.places
            place = pool_disk.plan(self.conn, spec, self.guest.name, format, xen, gone)
            work = disks.Work(spec, **place)
        else:
            work = disks.Work(spec, make=True, format=format, path=self.beside(path, name))
        if not work.make or (work.path and self.is_taken(work.path)):
            raise errors.AlreadyExists(f"disk {disk.target}: {name} exists already")
        work.image = SourceDisk(path, format, size, path, found.files)
        self.targets[target] = work
        return work

    def _is_volume(self, disk: Disk) -> bool:
        """Whether it is the drive from which cloud-init in the original may have to read yet."""
        path = (disk.source.file if disk.source else None) or ""
        return seed_drive.is_of(path, self.original.name()) and files.is_regular(path)

    def plan_volume(self, disk: Disk) -> disks.Work:
        """The Work that makes the copy's volume of that of the original."""
        old = disk.source.file or ""
        path = seed_drive.path(self.tools.admission_config.images_dir, self.guest.name)
        spec = DiskSpec(name=seed_drive.NAME, device="cdrom", source_file=path, format="raw")

        def write(part: str) -> None:
            if self.tools.reissue:
                self.tools.reissue(self.guest.name, old, part, self.interfaces())

        work = disks.Work(spec, True, "raw", path, write=write)
        self.targets[disk.target or ""] = work
        return work

    def new_name(self, old: str, target: str) -> str:
        """What the copy of a file or volume is called."""
        own = self.original.name()
        # no letter or digit behind it: that would be the file of a guest with a longer name
        if old.startswith(own) and not old[len(own) : len(own) + 1].isalnum():
            return self.guest.name + old[len(own) :]
        return f"{self.guest.name}_{target}{os.path.splitext(old)[1]}"

    def beside(self, path: str, name: str) -> str:
        """Where the copy goes: to its original's folder, but never among the cached images."""
        folder = os.path.dirname(path)
        if files.real(folder) == files.real(self.tools.admission_config.cache_dir):
            folder = self.tools.admission_config.images_dir
        return os.path.join(folder, name)

    def fetch(self) -> None:
        """Nothing to fetch: the disks are here."""

    def interfaces(self) -> list[dict[str, Any]]:
        return interfaces_of_copy(self.dom, self.model)

    def system_work(self) -> disks.Work | None:
        """The copy of the disk that was seeded in the original; of one that we did not make the
        first disk."""
        disk = identity.seeded_disk(self.model)
        return self.targets.get(disk.target or "") if disk else super().system_work()

    def finish(self, seeded: bool) -> None:
        """Without seeding, the copy has the minion that the original was seeded with."""
        super().finish(seeded or bool(self.model.record.seeded))

    def definition(self) -> Domain:
        built = self.model.copy()
        built.name = self.guest.name
        old = self.model.record
        built.record = GuestRecord(version=RECORD_VERSION)
        for entry in old.entries:
            built.record.entries.append(entry.copy())
        metadata.unmark(built.record)
        made_for_it = {own.path for own in old.disks if own.path}
        for disk in built.disks:
            work = self.targets.get(disk.target or "")
            if work:
                self.point(built.record, disk, work)
            elif disk.removable_medium and disk.source and disk.source.file in made_for_it:
                built.disks.remove(disk)  # what told the original who it is
        become_another(built, self.new_macs)
        identity.carry(self.model, built, self.macs)
        built.os.forget_variables()
        return built

    @staticmethod
    def point(made: GuestRecord, disk: Disk, work: disks.Work) -> None:
        """Points a disk of the copy to its own data, and records that it was made.

        After a snapshot the definition names the layers below the disk. QEMU would lay the copy,
        which is whole, upon those of the original.
        """
        own = OwnDisk(target=disk.target)
        disk.backing_store = None
        if work.pool:
            disk.source.pool, disk.source.volume = work.pool, work.volume
            disk.source.file = disk.source.dev = None
            disk.type = "volume"
            own.pool, own.volume = work.pool, work.volume
            if work.direct and work.source:
                disk.source, disk.type = work.source.element(), work.source.kind
        else:
            disk.source.file = own.path = work.path
        made.disks.append(own)


def clone(conn: libvirt.virConnect, original: str, guest: GuestRequest, tools: Tools) -> Made:
    """Copies a stopped domain; returns what ``virt.init`` answers."""
    names.guest(guest.name)
    with translated(f"clone {original} as {guest.name}"):
        return Clone(conn, lookup.lookup(conn, original), guest, tools).run()


def look(
    conn: libvirt.virConnect, original: str, guest: GuestRequest, tools: Tools
) -> dict[str, dict[str, str]]:
    """Where the copy's disks would go: ``disks`` of ``virt.clone``'s plan. Changes nothing.

    Raises what :func:`clone` would raise before it changes something.
    """
    names.guest(guest.name)
    with translated(f"clone {original} as {guest.name}"):
        admission.name_is_free(conn, guest.name)
        plan = Clone(conn, lookup.lookup(conn, original), guest, tools)
        plan.look_for_leftover()
        plan.check()
        places = ((w.path or f"{w.pool}/{w.volume}") for w in plan.works)
        return {"disks": dict(zip(plan.targets, places, strict=True))}


def was_seeded(conn: libvirt.virConnect, name: str) -> bool:
    """Whether the guest was seeded when it was made, by its record."""
    return bool(metadata.of_domain(lookup.lookup(conn, name)).seeded)
