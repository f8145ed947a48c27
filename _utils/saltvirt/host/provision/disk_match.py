"""Which disks of a guest an update speaks of, which are made, and which leave it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.design import identity
from saltvirt.design.source import Source, own_places, owns, places
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import resize, saved_memory
from saltvirt.host.provision import disks
from saltvirt.host.storage import chains, files, overlays, pool_source
from saltvirt.host.storage import identity as storage_identity
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from saltvirt.diff.change import Change
    from saltvirt.host.provision.disks import Work
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.xml.disk import Disk
    from saltvirt.xml.domain import Domain

# which disks leave that the request does not name: none, all, or those named here
Detach = bool | Collection[str]


def _own_name(guest: str, spec: DiskSpec, disk: Disk) -> bool:
    """Whether the name of a disk's file is that of a disk made for a DiskSpec of this name."""
    stem = f"{guest}_{spec.name}"
    if disk.source.pool:
        return disk.source.volume == stem
    if disk.source.protocol and disk.source.protocol not in pool_source.SERVERS:
        return False
    place = disk.source.file or disk.source.dev or disk.source.name
    base = os.path.basename(place or "")
    return base == stem or base.startswith(f"{stem}.")


class DiskMatch:
    """The disks of one update of one guest.

    actual: its definition. specs: what is requested; None leaves the disks. folder: where disks go
    of which nobody says it. running: the definition that the guest runs with. Raises InvalidInput
    where it is not clear which disk is meant, or where one would leave without permission;
    AlreadyExists, NotFound.
    """

    def __init__(
        self,
        conn: libvirt.virConnect,
        dom: libvirt.virDomain,
        actual: Domain,
        specs: list[DiskSpec] | None,
        detach: Detach,
        folder: str,
        running: Domain | None = None,
    ) -> None:
        self.conn, self.dom, self.actual = conn, dom, actual
        self.specs, self.detach = specs or [], detach
        self.guest = dom.name()
        self.known = actual.copy()
        if actual.record:
            identity.upgrade(self.known)
        self.running = running
        self.names = identity.disk_names(self.known)
        self.folder = folder
        self.warnings: list[str] = []
        self.works: list[Work] = []
        # {disk name: target}, of the disks that are there
        self.targets = identity.find_disks(
            self.specs, self.known, self._is_at, self._has_name, self._seed_drives()
        )
        # {disk name: Source}, of those whose data stays what it is
        self.sources: dict[str, Source] = {}
        # {target: (bytes, bytes that it shall have)}
        self.sizes: dict[str, tuple[int, int]] = {}
        self._plan()
        # the targets of the disks that leave the guest
        self.leaving = self._leaving()
        self._refuse_on_own()

    def _plan(self) -> None:
        """The Works of the disks that are not there; the sources and sizes of the others."""
        there = {disk.target: disk for disk in self.actual.disks}
        for spec in self.specs:
            disk = there.get(self.targets.get(spec.name))
            if disk is not None and disk.source and self._stays(spec, disk):
                self._refuse_other(spec, disk)
                source = Source.of_disk(disk)
                if source:
                    self.sources[spec.name] = source
                self._note_size(spec, disk)
            elif not (spec.source or spec.empty):
                known, kind = self._lost(spec) or spec, self.actual.type or ""
                work = disks.plan_one(self.conn, known, self.guest, self.folder, kind)
                self._refuse_twice(known, work)
                if work.make:
                    self._refuse_unclear(spec)
                self.works.append(work)
        disks.refuse_same_data(self.works)

    def _refuse_other(self, spec: DiskSpec, disk: Disk) -> None:
        """Raises InvalidInput for a new disk at the target of a disk that has another name, and for
        a disk that has a recorded name and not its data."""
        if self._is_at(spec, disk):
            return
        name = identity.disk_names(self.actual).get(disk.target or "", spec.name)
        is_new = spec.image or (spec.size_bytes and not spec.size_is_default)
        if name != spec.name and is_new:
            raise errors.InvalidInput(
                f"disk {spec.name}: {self.guest} has its disk {name} ({disk.source.place()}) at "
                f"{disk.target}: give {spec.name} another target, or list that disk as {name}; to "
                f"rename it, list {{name: {spec.name}, target: {disk.target}}} once, without size "
                "and image"
            )
        self._refuse_foreign(spec.name, disk)

    def _refuse_foreign(self, name: str, disk: Disk) -> None:
        """Raises InvalidInput for a disk that has the target of a recorded name, and whose file is
        not based on the recorded one: somebody attached it in its place."""
        named, path = identity.entry(self.known.record, name), disk.source.file
        if named is None or not named.path or not path or disk.removable_medium:
            return
        if identity.named_places(named) & places(disk):
            return
        chain = chains.read(path, disk.driver_type)
        unknown = chain.missing or chain.unreadable or chain.broken
        if not unknown and files.real(named.path) not in map(files.real, chain.paths):
            raise errors.InvalidInput(
                f"disk {name}: {self.guest} was given it as {named.path}, and has {path} at "
                f"{disk.target}, which is not based on it: if that is the disk {name}, list it "
                f"with source_file: {path}; if not, detach=['{disk.target}'] takes it away"
            )

    def _stays(self, spec: DiskSpec, disk: Disk) -> bool:
        """Whether a disk that is meant keeps its data: the spec names no place, or that one."""
        if spec.removable:
            return False
        if not (spec.source or spec.source_file) or self._is_at(spec, disk):
            return True
        known = identity.entry(self.known.record, spec.name)  # libvirt has put a layer on top
        return known is not None and bool(identity.named_places(known) & self._places(spec))

    def _is_at(self, spec: DiskSpec, disk: Disk) -> bool:
        return bool(self._places(spec) & places(disk))

    def _places(self, spec: DiskSpec) -> set[tuple[str | None, ...]]:
        """The place that a DiskSpec names, in every way to name it; none where it names none."""
        if spec.source_file and spec.pool:
            return self._in_pool(spec).places()
        found = Source.of_spec(spec)
        return found.places() if found else set()

    def _in_pool(self, spec: DiskSpec) -> Source:
        """The Source of a volume that a DiskSpec names, with every way to name it."""
        pool_name, volume = spec.pool or "", spec.source_file or ""
        found = Source(pool=pool_name, volume=volume)
        path = files.volume_path(self.conn, pool_name, volume)
        with contextlib.suppress(libvirt.libvirtError):
            pool = self.conn.storagePoolLookupByName(pool_name)
            found = pool_source.direct(self.conn, pool, volume) or found
        return replace(found, pool=pool_name, volume=volume, path=path)

    def _has_name(self, spec: DiskSpec, disk: Disk) -> bool:
        named = spec.source or spec.source_file or spec.removable or not disk.source
        return not named and _own_name(self.guest, spec, disk)

    def _seed_drives(self) -> set[str | None]:
        """The drive with our volume for cloud-init is nobody's to ask for."""
        made = {own.path for own in self.actual.record.disks}
        return {
            disk.target
            for disk in self.actual.disks
            if disk.device == "cdrom" and disk.source.file and disk.source.file in made
        }

    def _lost(self, spec: DiskSpec) -> DiskSpec | None:
        """The spec of a disk that was made for the guest and left it otherwise than by an update,
        as by a revert: it is used as it is."""
        known = identity.entry(self.known.record, spec.name)
        if spec.removable or spec.source_file or known is None or spec.name in self.targets:
            return None
        here = identity.named_places(known)
        if not any(own_places(own) & here for own in self.actual.record.disks):
            return None
        found = replace(spec, image=None, overlay_image=None, existing=None)
        found.pool, found.source_file = known.pool, known.path
        if known.pool:
            found.source_file = known.volume
        there = known.path and os.path.lexists(known.path)
        return found if there or known.pool else None

    def _refuse_twice(self, spec: DiskSpec, work: Work) -> None:
        """Raises InvalidInput for a disk that would be the second one with the same data: QEMU does
        not start such a guest, and without its locks the data would be lost."""
        if spec.removable or spec.shareable or spec.read_only:
            return
        here = self._places(spec) | (work.source.places() if work.source else set())
        keys = storage_identity.of(work.path) if work.path else frozenset()
        for disk in self.actual.disks:
            shared = disk.removable_medium or disk.shareable or disk.read_only
            path = disk.source.file or disk.source.dev
            same = places(disk) & here or (path and storage_identity.of(path) & keys)
            if path and not same and not work.make and not disk.removable_medium:
                self._refuse_base(spec, path, disk, keys)
            if same and not shared:
                raise errors.InvalidInput(
                    f"disk {spec.name}: {disk.source.place()} is disk {disk.target} of "
                    f"{self.guest} already. List that disk once, with its target, such as "
                    f"{{name: {spec.name}, target: {disk.target}}}"
                )

    def _refuse_on_own(self) -> None:
        """Raises InvalidInput for a file that is based on a disk that the guest keeps: the guest
        damages it by what it writes to that disk."""
        replaced = {self.targets.get(work.spec.name or "") for work in self.works}
        kept = [
            disk
            for disk in self.actual.disks
            if disk.target not in self.leaving | replaced
            and not (disk.removable_medium or disk.read_only or disk.shareable)
        ]
        for work in self.works if kept else ():
            if work.make or not work.path or work.spec.removable:
                continue
            keys = overlays.bases(work.path, work.format or "raw")
            for disk in kept if keys else ():
                path = disk.source.file or disk.source.dev
                if disk.source.pool:
                    path = files.volume_path(self.conn, disk.source.pool, disk.source.volume)
                if path and storage_identity.of(path) & keys:
                    raise errors.InvalidInput(
                        f"disk {work.spec.name}: {work.path} is based on {path}, which is disk "
                        f"{disk.target} of {self.guest}: each write to that damages what is based "
                        "on it"
                    )

    def _refuse_base(
        self, spec: DiskSpec, path: str, disk: Disk, keys: Collection[storage_identity.Key]
    ) -> None:
        """Raises InvalidInput for a file that a disk of the guest is based on: a layer above it,
        such as a snapshot's, is damaged by what is written to it."""
        for base in chains.read(path, disk.driver_type).paths[1:]:
            if not storage_identity.of(base).isdisjoint(keys):
                raise errors.InvalidInput(
                    f"disk {spec.name}: disk {disk.target} of {self.guest} ({path}) is based on "
                    f"{base}: a disk that is written to cannot be its base"
                )

    def _refuse_unclear(self, spec: DiskSpec) -> None:
        """Raises InvalidInput where a disk that would be made may be one that is there: one whose
        name nobody has recorded."""
        unclear = [
            disk
            for disk in self.actual.disks
            if not disk.removable_medium
            and disk.target not in self.names
            and disk.target not in self.targets.values()
            and (not identity.recorded(self.actual) or self._is_own(disk))
        ]
        if unclear:
            which = ", ".join(f"{disk.target} ({disk.source.place()})" for disk in unclear)
            raise errors.InvalidInput(
                f"disk {spec.name}: it may be one that {self.guest} has, whose name is not "
                f"recorded: {which}. List that disk, too, with a name and its target, such as "
                f"{{name: system, target: {unclear[0].target}}}"
            )

    def _is_own(self, disk: Disk) -> bool:
        """Whether a disk was made for the guest, or is a layer that a snapshot put upon it."""
        ours = [own for own in self.actual.record.disks if own.target == disk.target]
        if any(owns(own, disk) for own in ours):
            return True
        if not ours or not disk.source.file or disk.driver_type != "qcow2":
            return False
        layers = {files.real(path) for path in chains.read(disk.source.file, "qcow2").paths}
        paths = (own.path or files.volume_path(self.conn, own.pool, own.volume) for own in ours)
        return any(path and files.real(path) in layers for path in paths)

    def _leaving(self) -> set[str]:
        """The targets of the disks that leave the guest. Raises InvalidInput for the one that it
        boots from, unless ``detach`` names it, and for one that is both requested and to leave."""
        named = self._named()
        rest = [disk for disk in self.actual.disks if disk.target not in self.targets.values()]
        if self.detach is not True:
            return named
        read = self.actual.record.seeded and not any(spec.removable for spec in self.specs)
        gone = set[str]()
        for disk in rest:
            drive = disk.device == "cdrom" and read and not disk.source
            kept = disk.type == "block" and self.specs
            if not (drive or kept or disk.target in self._seed_drives()):
                self._refuse_boot_disk(disk)
                gone.add(disk.target or "")
        return gone

    def _named(self) -> set[str]:
        """The targets of the disks that ``detach`` names."""
        if isinstance(self.detach, bool):
            return set()
        found = set()
        for word in self.detach:
            target = next((t for t, name in self.names.items() if name == word), word)
            self._refuse_two_at(word)
            disk = next((disk for disk in self.actual.disks if disk.target == target), None)
            spec = next((one for one in self.specs if self.targets.get(one.name) == target), None)
            if disk is not None and word != target:
                self._refuse_foreign(word, disk)
            if disk is None and self._runs_with(word):
                continue
            if disk is None:
                self.warnings.append(f"{self.guest} has no disk {word} to detach")
            elif spec is None:
                found.add(target)
            elif self._stays(spec, disk):
                raise errors.InvalidInput(f"detach: {word} is one of the disks requested")
        return found

    def _runs_with(self, word: str) -> bool:
        """Whether the running guest has a disk of this name or target."""
        if self.running is None:
            return False
        targets = {disk.target for disk in self.running.disks}
        return word in targets or word in self._running_names().values()

    def _running_names(self) -> dict[str, str]:
        return identity.running_disk_names(self.running, self.known) if self.running else {}

    def _refuse_two_at(self, word: str) -> None:
        """Raises InvalidInput for a target at which the running guest has another disk than its
        definition: it has not released the one that was there."""
        names = self.names.get(word), self._running_names().get(word)
        if all(names) and names[0] != names[1]:
            raise errors.InvalidInput(
                f"detach: {word} is the disk {names[0]} in the definition of {self.guest}, which "
                f"still runs with the disk {names[1]} there: give the name instead"
            )

    def _refuse_boot_disk(self, disk: Disk) -> None:
        """Raises InvalidInput for the disk that the guest boots from."""
        boots = identity.boot_disk(self.actual)
        if boots is not None and boots.target == disk.target:
            name = self.names.get(disk.target or "", disk.target)
            raise errors.InvalidInput(
                f"{disk.source.place()} would be detached from {disk.target}, and {self.guest} "
                f"boots from it: list the disk {name}, or give detach=['{name}'] to detach it"
            )

    def refuse_replaced(self, found: list[Change], wanted: Domain) -> None:
        """Raises InvalidInput for a disk that would get other data without permission: that takes
        a disk from the guest. One that goes to another bus stays."""
        now = [places(disk) for disk in wanted.disks]
        paths = {one.path for one in found if (one.what, one.action) == ("disks", "detach")}
        for disk in self.actual.disks:
            moved = any(places(disk) & its for its in now)
            if f"disks:{disk.target}" in paths and disk.target not in self.leaving and not moved:
                self._refuse_replaced(disk)

    def _refuse_replaced(self, disk: Disk) -> None:
        name = self.names.get(disk.target or "", disk.target)
        if self.detach is True:
            self._refuse_boot_disk(disk)
        elif isinstance(self.detach, bool) or not {name, disk.target} & {*self.detach}:
            raise errors.InvalidInput(
                f"{disk.source.place()} would be detached from {disk.target}: detach=True allows "
                f"it, detach=['{name}'] of this disk alone"
            )

    def _note_size(self, spec: DiskSpec, disk: Disk) -> None:
        """Remembers that a disk of the guest's own is asked to be larger; another is left."""
        target = disk.target or ""
        if not spec.size_bytes or not disk.source:
            return
        reason = self._not_its_own(spec, disk)
        try:
            before = resize.size_of(self.conn, self.dom, target)
            if spec.size_bytes <= before:
                return
            resize.refuse_two(self.dom, target)
            saved_memory.refuse(self.dom, "grow a disk of")
            resize.refuse_shared(self.conn, self.dom, target)
        except errors.Refused as exc:
            reason = reason or exc.text
        except errors.VirtError as exc:
            if reason is None:
                raise
            if disk.source.protocol:
                wanted = human_bytes(spec.size_bytes)
                self.warnings.append(f"whether it has {wanted} is not known: {exc.text}")
            return
        if reason:
            wanted = human_bytes(spec.size_bytes)
            self.warnings.append(f"disk {disk.target} is not grown to {wanted}: {reason}")
        else:
            self.sizes[target] = (before, spec.size_bytes)

    def _not_its_own(self, spec: DiskSpec, disk: Disk) -> str | None:
        """Why a disk that is there is not one that was made for the guest; None for its own."""
        if self._is_own(disk):
            return None
        if not spec.source_file and _own_name(self.guest, spec, disk):
            return None
        return f"{disk.source.place()} was not made for this guest (virt.resize_disk grows it)"
