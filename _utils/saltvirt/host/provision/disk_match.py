"""Matching of requested disks with those of an existing guest."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.design import identity
from saltvirt.design.source import Source, disk_locations, own_locations, owns
from saltvirt.host.connection import libvirt
from saltvirt.host.domain import resize, saved_memory
from saltvirt.host.provision import disks
from saltvirt.host.snapshot import reader
from saltvirt.host.storage import chains, files, overlays, pool_source
from saltvirt.host.storage import identity as storage_identity
from saltvirt.spec.disk import FORMATS
from saltvirt.system import bounded_io
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from saltvirt.diff.change import Change
    from saltvirt.host.provision.disk_build import DiskBuild
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.xml.devices.disk import Disk
    from saltvirt.xml.domain.domain import Domain

# disks to remove that the request does not name: none, all, or those named here
Detach = bool | Collection[str]


def _has_own_name(guest: str, spec: DiskSpec, disk: Disk) -> bool:
    """Return whether the disk's file has the name of a disk created for this DiskSpec."""
    stem = f"{guest}_{spec.name}"
    if disk.source.pool:
        return disk.source.volume == stem
    if disk.source.protocol and disk.source.protocol not in pool_source.SERVERS:
        return False
    source_path = disk.source.file or disk.source.dev or disk.source.name
    base = os.path.basename(source_path or "")
    return base == stem or base.startswith(f"{stem}.")


class DiskMatch:
    """The disks in one update of a guest.

    actual: its definition. specs: the requested disks; None keeps all. folder: the default location
    of new disks. running: the definition of the running guest. Raises InvalidInput if a match is
    ambiguous, or if a disk would be removed without permission; AlreadyExists, NotFound.
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
        self.upgraded = actual.copy()
        if actual.record:
            identity.upgrade(self.upgraded)
        self.running = running
        self.names = identity.disk_names(self.upgraded)
        self.folder = folder
        self.warnings: list[str] = []
        # what detach names and the guest does not have
        self.missing: list[str] = []
        self.builds: list[DiskBuild] = []
        # {disk name: target} of existing disks
        self.targets = identity.find_disks(
            self.specs, self.upgraded, self._is_at, self._has_name, self._seed_drives()
        )
        # {disk name: Source} of disks that keep their data
        self.sources: dict[str, Source] = {}
        # {target: (current bytes, desired bytes)}
        self.sizes: dict[str, tuple[int, int]] = {}
        self._plan()
        # targets of the disks to remove
        self.leaving = self._leaving()
        self._refuse_own_overlay()

    def _plan(self) -> None:
        """Plan the DiskBuilds of new disks, and the sources and sizes of existing ones."""
        disks_by_target = {disk.target: disk for disk in self.actual.disks}
        for spec in self.specs:
            disk = disks_by_target.get(self.targets.get(spec.name))
            if disk is not None and disk.source and self._keeps_data(spec, disk):
                self._refuse_other(spec, disk)
                source = Source.of_disk(disk)
                if source:
                    self.sources[spec.name] = source
                self._note_size(spec, disk)
            elif not (spec.source or spec.empty):
                known_spec, base = self._known_spec(spec)
                kind = self.actual.type or ""
                build = disks.plan_disk(self.conn, known_spec, self.guest, self.folder, kind)
                build.base = base
                self._refuse_duplicate(known_spec, build)
                if build.make:
                    self._refuse_unclear(spec)
                self.builds.append(build)
        disks.refuse_same_data(self.builds)

    def _refuse_other(self, spec: DiskSpec, disk: Disk) -> None:
        """Raise InvalidInput if the target belongs to a disk with another name or other data."""
        if self._is_at(spec, disk):
            return
        name = identity.disk_names(self.actual).get(disk.target or "", spec.name)
        is_new = spec.image or (spec.size_bytes and not spec.size_is_default)
        if name != spec.name and is_new:
            raise errors.InvalidInput(
                f"disk {spec.name}: {self.guest} has its disk {name} ({disk.source.location()}) "
                f"at {disk.target}: choose another target for {spec.name}, or list that disk "
                f"as {name}; to rename it, list {{name: {spec.name}, target: {disk.target}}} "
                "once, without size and image"
            )
        self._refuse_foreign(spec.name, disk)

    def _refuse_foreign(self, name: str, disk: Disk) -> None:
        """Raise InvalidInput if the disk at a recorded target is not based on the recorded file.

        Someone else then attached it in place of the recorded disk.
        """
        recorded_disk, path = identity.entry(self.upgraded.record, name), disk.source.file
        if recorded_disk is None or not recorded_disk.path or not path or disk.removable_medium:
            return
        if identity.named_locations(recorded_disk) & disk_locations(disk):
            return
        chain = chains.read(path, disk.driver_type)
        unknown = chain.missing_path or chain.unreadable or chain.broken
        if not unknown and files.real(recorded_disk.path) not in map(files.real, chain.paths):
            raise errors.InvalidInput(
                f"disk {name}: {self.guest} was created with {recorded_disk.path}, but has {path} "
                f"at {disk.target}, which is not based on it: if that is the disk {name}, list it "
                f"with source_file: {path}; if not, detach=['{disk.target}'] detaches it"
            )

    def _keeps_data(self, spec: DiskSpec, disk: Disk) -> bool:
        """Return whether a matched disk keeps its data: the spec names the same location or
        none."""
        if spec.removable:
            return False
        if not (spec.source or spec.source_file) or self._is_at(spec, disk):
            return True
        # a snapshot may have added a layer
        recorded_disk = identity.entry(self.upgraded.record, spec.name)
        if recorded_disk is None:
            return False
        return bool(identity.named_locations(recorded_disk) & self._places(spec))

    def _is_at(self, spec: DiskSpec, disk: Disk) -> bool:
        return bool(self._places(spec) & disk_locations(disk))

    def _places(self, spec: DiskSpec) -> set[tuple[str | None, ...]]:
        """Return every form of the location that a DiskSpec names; empty if it names none."""
        if spec.source_file and spec.pool:
            return self._in_pool(spec).locations()
        source = Source.of_spec(spec)
        return source.locations() if source else set()

    def _in_pool(self, spec: DiskSpec) -> Source:
        """Return the Source of the volume that a DiskSpec names, with every form of its
        location."""
        pool_name, volume = spec.pool or "", spec.source_file or ""
        source = Source(pool=pool_name, volume=volume)
        path = files.volume_path(self.conn, pool_name, volume)
        with contextlib.suppress(libvirt.libvirtError):
            pool = self.conn.storagePoolLookupByName(pool_name)
            source = pool_source.direct(self.conn, pool, volume) or source
        return replace(source, pool=pool_name, volume=volume, path=path)

    def _has_name(self, spec: DiskSpec, disk: Disk) -> bool:
        has_source = spec.source or spec.source_file or spec.removable or not disk.source
        return not has_source and _has_own_name(self.guest, spec, disk)

    def _seed_drives(self) -> set[str | None]:
        """Return the targets of the cloud-init drives, which a request cannot match."""
        own_paths = {own_disk.path for own_disk in self.actual.record.disks}
        drives = [disk for disk in self.actual.disks if disk.device == "cdrom" and disk.source.file]
        return {disk.target for disk in drives if disk.source.file in own_paths}

    def _detached_spec(self, spec: DiskSpec) -> DiskSpec | None:
        """Return a spec that uses an existing disk which left the guest, as through a revert; else
        None."""
        if spec.removable or spec.source_file or spec.name in self.targets:
            return None
        recorded_disk = identity.entry(self.upgraded.record, spec.name)
        if recorded_disk is None:
            return None
        locations = identity.named_locations(recorded_disk)
        if not any(own_locations(own_disk) & locations for own_disk in self.actual.record.disks):
            return None
        existing_spec = replace(spec, image=None, overlay_image=None, existing=None)
        existing_spec.pool, existing_spec.source_file = recorded_disk.pool, recorded_disk.path
        if recorded_disk.pool:
            existing_spec.source_file = recorded_disk.volume
        path_exists = recorded_disk.path and os.path.lexists(recorded_disk.path)
        return existing_spec if path_exists or recorded_disk.pool else None

    def _known_spec(self, spec: DiskSpec) -> tuple[DiskSpec, str | None]:
        """Return the spec with what is known about a disk that left the guest.

        If snapshots have layers of the disk, that is the newest one, with what was written since,
        and the path without layers, which is recorded; else None.
        """
        newest = None
        if spec.existing and not (spec.removable or spec.source_file or spec.name in self.targets):
            is_base = functools.partial(self._is_base, spec)
            newest = reader.newest_layer(self.conn, self.dom, is_base)
        if newest is None:
            return self._detached_spec(spec) or spec, None
        base, layer = newest
        path = layer.written or ""
        if not bounded_io.lexists(path):
            raise errors.NotFound(
                f"disk {spec.name}: {path} does not exist on this host: it has what was written "
                f"to {base} since a snapshot"
            )
        used_targets = {disk.target for disk in (*self.actual.disks, *self.specs)}
        target = spec.target or (None if layer.target in used_targets else layer.target)
        layered_spec = replace(
            spec, existing=None, pool=None, source_file=path, format="qcow2", target=target,
            image=None, overlay_image=None,
        )  # fmt: skip
        return layered_spec, base

    def _is_base(self, spec: DiskSpec, path: str) -> bool:
        """Return whether a file has the location of the disk of a DiskSpec: as it is recorded, or
        with the name of a disk that was created for it."""
        name, stem = os.path.basename(path), f"{self.guest}_{spec.name}"
        recorded_disk = identity.entry(self.upgraded.record, spec.name)
        is_recorded = recorded_disk is not None and recorded_disk.path == path
        has_own_name = name in {stem, *(f"{stem}.{format}" for format in FORMATS)}
        if not path.startswith("/") or not (is_recorded or has_own_name):
            return False
        if spec.pool and not spec.pool.startswith("/"):
            return files.volume_path(self.conn, spec.pool, name) == path
        return not spec.pool or os.path.dirname(path) == os.path.normpath(spec.pool)

    def _refuse_duplicate(self, spec: DiskSpec, build: DiskBuild) -> None:
        """Raise InvalidInput for a second disk with the same data.

        QEMU does not start such a guest, and without QEMU's locks the data would be lost.
        """
        if spec.removable or spec.shareable or spec.read_only:
            return
        locations = self._places(spec) | (build.source.locations() if build.source else set())
        keys = storage_identity.keys_of(build.path) if build.path else frozenset()
        for disk in self.actual.disks:
            shared = disk.removable_medium or disk.shareable or disk.read_only
            path = disk.source.file or disk.source.dev
            same_file = path and storage_identity.keys_of(path) & keys
            same = disk_locations(disk) & locations or same_file
            if path and not same and not build.make and not disk.removable_medium:
                self._refuse_base(spec, path, disk, keys)
            if same and not shared:
                raise errors.InvalidInput(
                    f"disk {spec.name}: {disk.source.location()} is already disk {disk.target} of "
                    f"{self.guest}. List that disk once, with its target, such as {{name: "
                    f"{spec.name}, target: {disk.target}}}"
                )

    def _refuse_own_overlay(self) -> None:
        """Raise InvalidInput for a disk that is based on a remaining disk of the guest.

        The guest's writes to the backing disk would damage it.
        """
        replaced = {self.targets.get(build.spec.name or "") for build in self.builds}
        leaving = self.leaving | replaced
        remaining = [
            disk
            for disk in self.actual.disks
            if disk.target not in leaving
            and not (disk.removable_medium or disk.read_only or disk.shareable)
        ]
        for build in self.builds if remaining else ():
            if build.make or not build.path or build.spec.removable:
                continue
            keys = overlays.base_keys(build.path, build.format or "raw")
            for disk in remaining if keys else ():
                path = disk.source.file or disk.source.dev
                if disk.source.pool:
                    path = files.volume_path(self.conn, disk.source.pool, disk.source.volume)
                if path and storage_identity.keys_of(path) & keys:
                    raise errors.InvalidInput(
                        f"disk {build.spec.name}: {build.path} is based on {path}, which is disk "
                        f"{disk.target} of {self.guest}: each write to {path} would damage "
                        f"{build.path}"
                    )

    def _refuse_base(
        self, spec: DiskSpec, path: str, disk: Disk, keys: Collection[storage_identity.Key]
    ) -> None:
        """Raise InvalidInput for a file that is a backing file of a disk of the guest.

        Writes to it would damage the layer above, such as that of a snapshot.
        """
        for base in chains.read(path, disk.driver_type).paths[1:]:
            if not storage_identity.keys_of(base).isdisjoint(keys):
                raise errors.InvalidInput(
                    f"disk {spec.name}: disk {disk.target} of {self.guest} ({path}) is based on "
                    f"{base}: a writable disk cannot be its backing file"
                )

    def _refuse_unclear(self, spec: DiskSpec) -> None:
        """Raise InvalidInput if a new disk may be an existing one whose name is not recorded.

        ``existing: False`` says that it is new.
        """
        if spec.existing is False:
            return
        known_targets = {*self.names, *self.targets.values()}
        unnamed = [disk for disk in self.actual.disks if disk.target not in known_targets]
        unclear = [disk for disk in unnamed if not disk.removable_medium]
        if identity.has_device_names(self.actual):
            unclear = [disk for disk in unclear if self._is_own(disk)]
        if unclear:
            locations = [f"{disk.target} ({disk.source.location()})" for disk in unclear]
            raise errors.InvalidInput(
                f"disk {spec.name}: it may be a disk that {self.guest} already has and whose "
                f"name is not recorded: {', '.join(locations)}. List that disk too, with a name "
                f"and its target, such as {{name: system, target: {unclear[0].target}}}; if "
                f"{spec.name} is new, give it existing: False"
            )

    def _is_own(self, disk: Disk) -> bool:
        """Return whether the disk was created for the guest, or is a snapshot layer of such a
        disk."""
        own_disks = [d for d in self.actual.record.disks if d.target == disk.target]
        if any(owns(own_disk, disk) for own_disk in own_disks):
            return True
        if not own_disks or not disk.source.file or disk.driver_type != "qcow2":
            return False
        layers = {files.real(path) for path in chains.read(disk.source.file, "qcow2").paths}
        paths = (
            own_disk.path or files.volume_path(self.conn, own_disk.pool, own_disk.volume)
            for own_disk in own_disks
        )
        return any(path and files.real(path) in layers for path in paths)

    def _leaving(self) -> set[str]:
        """Return the targets of the disks to remove.

        Raises InvalidInput for the boot disk unless ``detach`` names it, and for a disk that is
        both requested and to be removed.
        """
        detach_targets = self._detach_targets()
        unmatched = [disk for disk in self.actual.disks if disk.target not in self.targets.values()]
        if self.detach is not True:
            return detach_targets
        requests_drive = any(spec.removable for spec in self.specs)
        seed_drive_used = self.actual.record.seeded and not requests_drive
        leaving = set[str]()
        for disk in unmatched:
            drive = disk.device == "cdrom" and seed_drive_used and not disk.source
            is_kept_device = disk.type == "block" and self.specs
            if not (drive or is_kept_device or disk.target in self._seed_drives()):
                self._refuse_boot_disk(disk)
                leaving.add(disk.target or "")
        return leaving

    def _detach_targets(self) -> set[str]:
        """Return the targets of the disks that ``detach`` names."""
        if isinstance(self.detach, bool):
            return set()
        targets = set()
        for word in self.detach:
            target = next((t for t, name in self.names.items() if name == word), word)
            self._refuse_two_at(word)
            disk = next((disk for disk in self.actual.disks if disk.target == target), None)
            spec = next(
                (spec for spec in self.specs if self.targets.get(spec.name) == target), None
            )
            if disk is not None and word != target:
                self._refuse_foreign(word, disk)
            if disk is None and self._runs_with(word):
                continue
            if disk is None:
                self.missing.append(f"disk {word}")
            elif spec is None:
                targets.add(target)
            elif self._keeps_data(spec, disk):
                raise errors.InvalidInput(f"detach: {word} is one of the disks requested")
        return targets

    def _runs_with(self, word: str) -> bool:
        """Return whether the running guest has a disk with this name or target."""
        if self.running is None:
            return False
        targets = {disk.target for disk in self.running.disks}
        return word in targets or word in self._running_names().values()

    def busy_targets(self) -> set[str]:
        """Return the targets of disks that the running guest has not released, and that the request
        does not attach again."""
        if self.running is None:
            return set()
        defined_targets = {disk.target for disk in self.actual.disks}
        requested = [build.source.locations() for build in self.builds if build.source]
        return {
            disk.target or ""
            for disk in self.running.disks
            if disk.target not in defined_targets
            and not any(disk_locations(disk) & locations for locations in requested)
        }

    def _running_names(self) -> dict[str, str]:
        return identity.running_disk_names(self.running, self.upgraded) if self.running else {}

    def _refuse_two_at(self, word: str) -> None:
        """Raise InvalidInput if the running guest has another disk at this target than its
        definition.

        The guest then has not released the previous disk yet.
        """
        names = self.names.get(word), self._running_names().get(word)
        if all(names) and names[0] != names[1]:
            raise errors.InvalidInput(
                f"detach: {word} is disk {names[0]} in the definition of {self.guest}, but "
                f"the running guest has disk {names[1]} there: pass the name instead"
            )

    def _refuse_boot_disk(self, disk: Disk) -> None:
        """Raise InvalidInput for the boot disk."""
        boots = identity.boot_disk(self.actual)
        if boots is not None and boots.target == disk.target:
            name = self.names.get(disk.target or "", disk.target)
            raise errors.InvalidInput(
                f"{disk.source.location()} would be detached from {disk.target}, and {self.guest} "
                f"boots from it: list the disk {name}, or pass detach=['{name}'] to detach it"
            )

    def refuse_replaced(self, changes: list[Change], desired: Domain) -> None:
        """Raise InvalidInput if a disk would be replaced without permission.

        A disk that only moves to another bus is kept.
        """
        new_locations = [disk_locations(disk) for disk in desired.disks]
        detached = [change for change in changes if change.subject == "disks"]
        paths = {change.path for change in detached if change.action == "detach"}
        for disk in self.actual.disks:
            is_moved = any(disk_locations(disk) & locations for locations in new_locations)
            if f"disks:{disk.target}" in paths and disk.target not in self.leaving and not is_moved:
                self._refuse_replaced(disk)

    def _refuse_replaced(self, disk: Disk) -> None:
        name = self.names.get(disk.target or "", disk.target)
        if self.detach is True:
            self._refuse_boot_disk(disk)
        elif isinstance(self.detach, bool) or not {name, disk.target} & {*self.detach}:
            raise errors.InvalidInput(
                f"{disk.source.location()} would be detached from {disk.target}: detach=True "
                f"allows all such changes, detach=['{name}'] only this one"
            )

    def _note_size(self, spec: DiskSpec, disk: Disk) -> None:
        """Plan to grow a disk of the guest, or add a warning if that is not possible."""
        target = disk.target or ""
        if not spec.size_bytes or not disk.source:
            return
        reason = "it is read-only" if disk.read_only else self._not_its_own(spec, disk)
        try:
            old_bytes = resize.size_of(self.conn, self.dom, target)
            if spec.size_bytes <= old_bytes:
                return
            resize.refuse_conflict(self.dom, target)
            saved_memory.refuse(self.dom, "grow a disk of")
            resize.refuse_shared(self.conn, self.dom, target)
        except errors.Refused as exc:
            reason = reason or exc.text
        except errors.VirtError as exc:
            if reason is None:
                raise
            if disk.source.protocol:
                size_text = human_bytes(spec.size_bytes)
                self.warnings.append(f"cannot determine whether it has {size_text}: {exc.text}")
            return
        if reason:
            size_text = human_bytes(spec.size_bytes)
            self.warnings.append(f"disk {disk.target} was not grown to {size_text}: {reason}")
        else:
            self.sizes[target] = (old_bytes, spec.size_bytes)

    def _not_its_own(self, spec: DiskSpec, disk: Disk) -> str | None:
        """Return why a disk was not created for this guest, or None if it was."""
        if self._is_own(disk):
            return None
        if not spec.source_file and _has_own_name(self.guest, spec, disk):
            return None
        return (
            f"{disk.source.location()} was not created for this guest (virt.resize_disk grows it)"
        )
