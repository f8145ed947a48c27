"""Cloning of a stopped guest: its definition and its own disks under a new name."""

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
from saltvirt.host.provision import (
    admission,
    disk_build,
    macs,
    pool_disk,
    seed_drive,
    undo_disks,
)
from saltvirt.host.provision.guest_builder import (
    GuestBuilder,
    assign_identity,
    interfaces_of_copy,
)
from saltvirt.host.storage import file_mark, files, unchanged_disks
from saltvirt.images import inspect
from saltvirt.images.clone import create_atomic
from saltvirt.spec.disk import DiskSpec
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.metadata import GuestRecord, OwnDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from saltvirt.answers.created import CreatedGuest
    from saltvirt.host.provision.guest_builder import GuestRequest, Tools
    from saltvirt.xml.devices.disk import Disk


_CHARACTERS = ("serial", "parallel", "console", "channel")


@dataclass(frozen=True)
class SourceDisk:
    """A disk to copy.

    source: its address in the record of the new guest.
    """

    path: str
    format: str
    virtual_size_bytes: int
    source: str
    files: tuple[str, ...]
    sha256: str | None = None


def _is_copied(disk: Disk) -> bool:
    """Return whether a clone gets its own copy of the disk."""
    return bool(
        disk.device in (None, "disk") and disk.source and not (disk.read_only or disk.shareable)
    )


def _shared_resources(devices: Element) -> Iterator[str]:
    """Yield descriptions of resources that two guests cannot share.

    These are the addresses and files of serial ports and channels, log files, and host devices.
    """
    for node in (device for tag in _CHARACTERS for device in devices.findall(tag)):
        for source in node.findall("source"):
            address = f"{source.get('host', '')}:{source.get('service')}"
            endpoint = source.get("path") or (address if source.get("service") else None)
            if endpoint and source.get("mode") != "connect" and node.get("type") != "pty":
                yield f"the {node.get('type')} {endpoint} of a serial port or channel"
        for log in node.findall("log"):
            yield f"the log {log.get('file')}"
    hostdevs = [*devices.findall("hostdev"), *devices.findall("input[@type='evdev']")]
    hostdevs += [*devices.findall("interface[@type='hostdev']")]
    if hostdevs:
        yield "devices of the host"


class CloneBuilder(GuestBuilder):
    """Builds a guest from an existing one.

    original: the virDomain to copy.
    """

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
        self.targets: dict[str, disk_build.DiskBuild] = {}

    def read(self) -> None:
        """Read the original. Until its lock is held, other operations may change it."""
        secure = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE
        self.model = Domain.fromstring(self.original.XMLDesc(secure))
        self.new_macs = macs.generate(self.conn, len(self.model.interfaces))

    @property
    def macs(self) -> dict[str, str]:
        """{MAC of an interface of the original, in lower case: MAC of the clone's}."""
        return macs.pairs(self.model.interfaces, self.new_macs)

    def check(self) -> None:
        self.tools.report_step("check", "checking the disks to copy")
        self.read()
        self.require_stopped()
        if self.guest.seed and not self.tools.seeder:
            raise errors.Unsupported("this host cannot seed: pass seed=False")
        self.refuse_memory()
        for disk in self.model.disks:
            self.refuse_lun(disk)
            if _is_copied(disk):
                self.builds.append(self.plan(disk))
            elif self.guest.seed and self.tools.reissue and self._is_volume(disk):
                self.builds.append(self.plan_volume(disk))
        self.admit(self.definition())
        self.warn_shared()

    def warn_shared(self) -> None:
        """Warn about resources that the clone shares with the original, and about data that it
        lacks."""
        devices = self.model.need().find("devices")
        resources = dict.fromkeys(_shared_resources(devices)) if devices is not None else {}
        old, new = self.original.name(), self.guest.name
        for resource in resources:
            self.tools.warn(
                f"{new} has {resource}, as {old} has: change one of them before both run"
            )
        for serial in self.model.need().iterfind("sysinfo/system/entry[@name='serial']"):
            self.tools.warn(f"{new} has the serial number of {old}, {serial.text}")
        if self.model.need().find("devices/tpm/backend[@type='emulator']") is not None:
            self.tools.warn(
                f"{new} has an empty TPM: secrets sealed to the TPM of {old} cannot be opened"
            )

    def refuse_lun(self, disk: Disk) -> None:
        """Raise Unsupported for a LUN of the original, since the clone would write to the same
        one."""
        if disk.device == "lun" and not (disk.read_only or disk.shareable):
            raise errors.Unsupported(
                f"disk {disk.target} of {self.original.name()} is a LUN, "
                f"{disk.source.location()}: it cannot be copied, and both guests would write "
                "to it: detach it, clone the guest, and attach it again"
            )

    def refuse_memory(self) -> None:
        """Raise Unsupported for memory in a file or device (NVDIMM, virtio-pmem).

        Both guests would write to it, and neither libvirt nor QEMU locks it.
        """
        for path in self.model.need().iterfind("devices/memory/source/path"):
            raise errors.Unsupported(
                f"the memory of {self.original.name()} is backed by {path.text}, to which both "
                "guests would write: remove it from the definition, and clone the guest again"
            )

    def guests(self) -> list[str]:
        return [self.original.name(), self.guest.name]

    def require_stopped(self) -> None:
        """Raise Refused unless the original is shut off without saved memory; Incomplete if
        unfinished."""
        creation.require_complete(self.original, "clone")
        name, state = self.original.name(), lookup.state(self.original)
        if state != "shutdown":
            raise errors.Refused(
                f"{name} is {state}: stop it first, so that its disks are consistent"
            )
        if self.original.hasManagedSaveImage():
            raise errors.Refused(
                f"{name} has saved memory, without which its disks are not consistent: start "
                "it and shut it down first"
            )

    def make_disks(self) -> None:
        """Copy the disks while no process writes to them. Plain libvirt does not take the
        guest's lock."""
        sources = [build.image.path for build in self.builds if build.image]
        with unchanged_disks.UnchangedDisks(self.original.name(), sources) as unchanged:
            self.require_stopped()
            super().make_disks()
            self.copy_variables()
            self.require_stopped()
            unchanged.check()

    def copy_variables(self) -> None:
        """Copy the firmware variables, without whose boot entries some systems do not boot."""
        old = files.variables_of(self.model.need())
        if not old or not files.is_regular(old):
            return
        new = files.variables_of(ElementTree.fromstring(self.dom.XMLDesc(0)))
        folder, name = os.path.split(old)
        prefix = f"{self.original.name()}_VARS."
        if new is None and name.startswith(prefix):  # libvirt chooses the file at the first start
            new = os.path.join(folder, f"{self.guest.name}_VARS.{name[len(prefix) :]}")
        if not new:
            self.tools.warn(f"{self.guest.name} has new firmware variables, without boot entries")
            return
        if os.path.lexists(new):
            self.tools.warn(
                f"{self.guest.name} starts with the firmware variables in {new}, which remain "
                f"from an earlier guest, not with those of {self.original.name()}: for new "
                "variables move that file away before the start"
            )
            return

        def copy(part: str) -> None:
            with open(old, "rb") as source, open(part, "wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                os.fsync(target.fileno())

        try:
            create_atomic(new, copy)
        except OSError as exc:
            raise errors.OperationFailed(f"cannot copy {old} to {new}: {exc.strerror}") from exc
        self.undo.push(f"remove {new}", undo_disks.remove_file, new)

    def plan(self, disk: Disk) -> disk_build.DiskBuild:
        """Return the DiskBuild that copies a disk."""
        target = disk.target or ""
        path = disk.source.file or disk.source.dev
        pool, old = disk.source.pool, disk.source.volume
        if pool:
            path = files.volume_path(self.conn, pool, old)
        elif path and not files.is_regular(path):
            pool, old = pool_disk.volume_of_path(self.conn, path)
        if not path or not (pool or files.is_regular(path)):
            raise errors.Unsupported(
                f"disk {disk.target} of {self.original.name()} is on {disk.source.location()}: "
                "only files and volumes of storage pools can be copied"
            )
        format = disk.driver_type or "raw"
        image_facts = inspect.inspect(path, format, folders=["/"])
        size = image_facts.virtual_size_bytes
        spec = DiskSpec(name=target, device="disk", size_bytes=size, image=path)
        name = self.new_name(os.path.basename(old or path), target)
        if pool:
            spec.pool, spec.source_file = pool, name
            xen = self.model.type == "xen"
            freed_locations = self.leftover.locations
            volume_plan = pool_disk.plan(
                self.conn, spec, self.guest.name, format, xen, freed_locations
            )
            build = disk_build.DiskBuild(spec, **volume_plan)
        else:
            build = disk_build.DiskBuild(
                spec, make=True, format=format, path=self.copy_path(path, name)
            )
        if not build.make or (build.path and self.is_path_taken(build.path)):
            raise errors.AlreadyExists(f"disk {disk.target}: {name} already exists")
        build.image = SourceDisk(path, format, size, path, image_facts.files)
        self.targets[target] = build
        return build

    def _is_volume(self, disk: Disk) -> bool:
        """Return whether it is the seed drive of the original."""
        path = (disk.source.file if disk.source else None) or ""
        return seed_drive.is_seed_path(path, self.original.name()) and files.is_regular(path)

    def plan_volume(self, disk: Disk) -> disk_build.DiskBuild:
        """Return the DiskBuild that creates the clone's seed volume from that of the original."""
        old = disk.source.file or ""
        path = seed_drive.path(self.tools.admission_config.images_dir, self.guest.name)
        spec = DiskSpec(name=seed_drive.NAME, device="cdrom", source_file=path, format="raw")

        def write(part: str) -> None:
            if self.tools.reissue:
                self.tools.reissue(self.guest.name, old, part, self.interfaces())

        build = disk_build.DiskBuild(spec, True, "raw", path, write=write)
        self.targets[disk.target or ""] = build
        return build

    def new_name(self, old: str, target: str) -> str:
        """Return the name for the copy of a file or volume."""
        guest_name = self.original.name()
        # followed by a letter or digit, it would be the file of a guest with a longer name
        if old.startswith(guest_name) and not old[len(guest_name) : len(guest_name) + 1].isalnum():
            return self.guest.name + old[len(guest_name) :]
        return f"{self.guest.name}_{target}{os.path.splitext(old)[1]}"

    def copy_path(self, path: str, name: str) -> str:
        """Return the path for a copy: in the original's folder, but never in the image cache."""
        folder = os.path.dirname(path)
        if files.real(folder) == files.real(self.tools.admission_config.cache_dir):
            folder = self.tools.admission_config.images_dir
        return os.path.join(folder, name)

    def fetch(self) -> None:
        """Do nothing: the disks are on this host."""

    def interfaces(self) -> list[dict[str, Any]]:
        return interfaces_of_copy(self.dom, self.model)

    def system_work(self) -> disk_build.DiskBuild | None:
        """Return the copy of the disk that was seeded in the original, or else the first disk."""
        disk = identity.seeded_disk(self.model)
        return self.targets.get(disk.target or "") if disk else super().system_work()

    def finish(self, seeded: bool) -> None:
        """Complete the clone. Without seeding, it has the minion of the original."""
        super().finish(seeded or bool(self.model.record.seeded))

    def definition(self) -> Domain:
        copy_definition = self.model.copy()
        copy_definition.name = self.guest.name
        old_record = self.model.record
        copy_definition.record = GuestRecord(version=RECORD_VERSION, os=old_record.os)
        for entry in old_record.entries:
            copy_definition.record.entries.append(entry.copy())
        metadata.unmark(copy_definition.record)
        own_paths = {own_disk.path for own_disk in old_record.disks if own_disk.path}
        for disk in copy_definition.disks:
            build = self.targets.get(disk.target or "")
            if build:
                self.redirect_disk(copy_definition.record, disk, build)
            elif disk.removable_medium and disk.source and disk.source.file in own_paths:
                copy_definition.disks.remove(disk)  # the seed drive of the original
        assign_identity(copy_definition, self.new_macs)
        identity.carry(self.model, copy_definition, self.macs)
        copy_definition.os.forget_variables()
        return copy_definition

    @staticmethod
    def redirect_disk(record: GuestRecord, disk: Disk, build: disk_build.DiskBuild) -> None:
        """Point a disk of the clone to its own data, and record that it was created.

        After a snapshot the definition lists the layers below the disk. They are removed, since the
        copy has no backing file.
        """
        own_disk = OwnDisk(target=disk.target)
        disk.backing_store = None
        if build.pool:
            disk.source.pool, disk.source.volume = build.pool, build.volume
            disk.source.file = disk.source.dev = None
            disk.type = "volume"
            own_disk.pool, own_disk.volume = build.pool, build.volume
            if build.direct and build.source:
                disk.source, disk.type = build.source.element(), build.source.kind
        else:
            disk.source.file = own_disk.path = build.path
        record.disks.append(own_disk)


def clone(
    conn: libvirt.virConnect, original: str, guest: GuestRequest, tools: Tools
) -> CreatedGuest:
    """Clone a shut-off domain; return the answer of ``virt.init``."""
    names.guest(guest.name)
    with translated(f"clone {original} as {guest.name}"):
        return CloneBuilder(conn, lookup.lookup(conn, original), guest, tools).run()


def preview(
    conn: libvirt.virConnect, original: str, guest: GuestRequest, tools: Tools
) -> dict[str, dict[str, str]]:
    """Return the locations of the clone's disks: ``disks`` in the plan of ``virt.clone``.

    Changes nothing. Raises the errors that :func:`clone` would raise before its first change.
    """
    names.guest(guest.name)
    with translated(f"clone {original} as {guest.name}"):
        admission.refuse_name_in_use(conn, guest.name)
        plan = CloneBuilder(conn, lookup.lookup(conn, original), guest, tools)
        plan.find_leftover()
        plan.check()
        places = ((w.path or f"{w.pool}/{w.volume}") for w in plan.builds)
        return {"disks": dict(zip(plan.targets, places, strict=True))}


def was_seeded(conn: libvirt.virConnect, name: str) -> bool:
    """Return whether the guest was seeded on creation, according to its record."""
    return bool(metadata.of_domain(lookup.lookup(conn, name)).seeded)
