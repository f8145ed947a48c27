"""Update of an existing guest: only differences are applied."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.design import domain, identity
from saltvirt.design.plain_data import plain
from saltvirt.design.put import is_given
from saltvirt.design.source import disk_locations
from saltvirt.diff import changes, pending
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import creation, lookup, metadata, resize, saved_memory
from saltvirt.host.provision import (
    admission,
    definition_check,
    disk_journal,
    disks,
    firmware,
    guest_definition,
    hotplug,
    kernels,
    macs,
    osinfo,
    reservation,
)
from saltvirt.host.provision.disk_match import DiskMatch
from saltvirt.placement import resources
from saltvirt.revert import UndoStack
from saltvirt.spec.cpu import CpuSpec
from saltvirt.spec.memory import MemorySpec
from saltvirt.spec.nic import NicSpec
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from saltvirt.design.context import GuestInputs
    from saltvirt.design.operating_system import GuestOs
    from saltvirt.diff.change import Change
    from saltvirt.host.provision.disk_build import DiskBuild
    from saltvirt.host.provision.disk_journal import DiskJournal
    from saltvirt.host.provision.disk_match import Detach
    from saltvirt.host.provision.guest_builder import Tools
    from saltvirt.host.provision.reservation import GrowthReservation
    from saltvirt.placement import facts
    from saltvirt.placement.facts import PlacementRequest
    from saltvirt.spec.guest_spec import GuestSpec

# plain libvirt does not take the guest's lock; the comparison is repeated after its changes
ATTEMPTS = 3
_KINDS = {"disks": "disk", "nics": "interface", "host_devices": "hostdev"}
_RESULT_KEYS = {
    "attach": "attached",
    "detach": "detached",
    "medium": "updated",
    "update": "updated",
    "limit": "updated",
}


def _running(dom: libvirt.virDomain) -> Domain:
    """Return the definition of the running guest, with passwords."""
    return Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE))


@dataclass(frozen=True)
class UpdateOptions:
    """Options of an update.

    live: also change the running guest. detach: which disks to remove that the request does not
    name: none, all except the boot disk, or those with these names or targets. detach_nics: MACs
    or names of the interfaces to remove; all others are kept. None: those that the request does not
    name are removed. test: only report changes.
    """

    live: bool = True
    detach: Detach = False
    test: bool = False
    detach_nics: tuple[str, ...] | None = None


class Update:
    """One update of one guest."""

    def __init__(
        self, conn: libvirt.virConnect, spec: GuestSpec, tools: Tools, options: UpdateOptions
    ) -> None:
        self.conn = conn
        self.spec = spec
        self.options = options
        self.tools = tools
        self.dom = lookup.lookup(conn, spec.name)
        creation.require_complete(self.dom, "update")
        if not self.dom.isPersistent():
            raise errors.Unsupported(f"{spec.name} is transient: it has no definition to update")
        self.actual = guest_definition.stored(self.dom)
        self.caps = guest_definition.caps_of(conn, self.actual)
        self.builds: list[DiskBuild] = []
        self.sizes: dict[str, tuple[int, int]] = {}
        self.warnings: list[str] = []
        # what is to be detached and does not exist
        self.missing: list[str] = []
        # files of boot that this host does not have
        self.absent: list[str] = []
        # new MACs that another guest of this host has
        self.duplicates: list[str] = []
        self.desired = self.actual
        # what the running guest lacks, and what of it can be changed now
        self.running = self.actual
        self.config_changes: list[Change] = []
        self.lacking: list[Change] = []
        self.now_changes: list[Change] = []
        self.slow = False  # a balloon change is in progress
        images_dir, saltenv = tools.admission_config.images_dir, spec.deploy.saltenv
        self.kernels = kernels.set_local_paths(spec.boot, images_dir, saltenv)

    def compare(self) -> list[Change]:
        """Return the changes of the definition; change nothing on the host."""
        self.absent = [
            *kernels.absent_files(self.conn, self.spec.boot, self.kernels, self.actual.os)
        ]
        self.warnings.extend(map(kernels.absence_warning, self.absent))
        match = self.match_disks()
        context = guest_definition.host_context(
            self.conn, self.spec, self.builds, self.requested_os()
        )
        self.match_nics(context)
        if match:
            context.sources.update(match.sources)
            context.disk_targets, context.leaving = match.targets, match.leaving
            context.busy_targets = match.busy_targets()
        self.desired = domain.amend(self.spec, self.actual, self.caps, context, self.warnings)
        firmware.refuse_change(self.spec.name, self.actual, self.desired, self.caps)
        autostart = (self.spec.autostart, bool(self.dom.autostart()))
        active = bool(self.dom.isActive())
        live = self.options.live and active
        self.config_changes = config_changes = changes.changes(
            self.desired, self.actual, live, self.sizes, autostart, context.removed
        )
        if config_changes:
            definition_check.refuse_rejected(self.conn, self.desired, self.actual)
        if match:
            match.refuse_replaced(config_changes, self.desired)
            self.warn_of_snapshots()
        if active:
            self.running = _running(self.dom)
            self.lacking = pending.pending_changes(self.running, self.desired)
            self.now_changes = self.live_changes() if live else []
        return config_changes

    def requested_os(self) -> GuestOs | None:
        """Return the requested operating system; None if it is recorded already: only another host
        may know that one. Raises InvalidInput if it is unknown."""
        name = self.spec.os
        return osinfo.find(name) if name and name != self.actual.record.os else None

    def warn_of_snapshots(self) -> None:
        """Warn if disks leave a guest that has snapshots."""
        kinds = {(change.subject, change.action) for change in self.config_changes}
        if ("disks", "detach") in kinds and self.dom.snapshotNum():
            self.warnings.append(
                f"{self.spec.name} has snapshots: those that contain the detached disk cannot be "
                "reverted to until it is attached again"
            )

    def live_changes(self) -> list[Change]:
        """Return the outstanding changes of the running guest that are applied now."""
        allowed = [change for change in self.lacking if self.may_do(change)]
        # a new device needs the place of the detached one
        detaching = [change for change in self.lacking if change.action == "detach"]
        blocked_paths = {change.path for change in detaching if change not in allowed}
        return [change for change in allowed if change.path not in blocked_paths]

    def may_do(self, change: Change) -> bool:
        """Return whether a change is applied to the running guest.

        libvirt must support it, and the request must cover it. Memory and disks are removed only on
        explicit request.
        """
        if not change.live or change.subject not in self.requested_groups():
            return False
        if change.path == pending.MEMORY and (change.new or 0) < (change.old or 0):
            return is_given(self.spec.memory.current_kib)
        if change.subject == "disks" and change.action == "detach":
            return self.may_detach(change)
        return not self.is_seed_drive(change)

    def may_detach(self, change: Change) -> bool:
        """Return whether a disk is detached from the running guest.

        This or an earlier request must have removed it from the definition. The boot disk is
        detached only if ``detach`` names it.
        """
        target = change.path.partition(":")[2]
        name = identity.running_disk_names(self.running, self.actual).get(target)
        leaving_now = [leaving for leaving in self.config_changes if leaving.live]
        if any(self.is_same_disk(leaving, change, name) for leaving in leaving_now):
            return True
        if not isinstance(self.options.detach, bool):
            return bool({target, name} & {*self.options.detach})
        boots = identity.boot_disk(self.running)
        return self.options.detach and (boots is None or boots.target != target)

    def is_same_disk(self, leaving: Change, change: Change, name: str | None) -> bool:
        """Return whether the disk that leaves the definition is the one at its target in the
        running guest.

        The running guest may not have released a previous disk. name: the name of the running
        guest's disk.
        """
        if leaving.path != change.path or leaving.action != "detach":
            return False
        disks = [Disk.fromstring(disk_change.xml) for disk_change in (leaving, change)]
        known_name = identity.disk_names(self.actual).get(disks[0].target or "")
        same_name = known_name is not None and known_name == name
        return same_name or bool(disk_locations(disks[0]) & disk_locations(disks[1]))

    def requested_groups(self) -> set[str]:
        """Return the groups of changes that the request can cause."""
        spec = self.spec
        groups = {
            "cpu": spec.cpu != CpuSpec(), "mem": spec.memory != MemorySpec(),
            "disks": spec.disks is not None, "controllers": spec.disks is not None,
            "nics": spec.nics is not None, "graphics": spec.graphics is not None,
            "host_devices": spec.host_devices is not None, "vsock": spec.vsock is not None,
            "title": spec.title is not None, "description": spec.description is not None,
        }  # fmt: skip
        return {group for group, is_requested in groups.items() if is_requested}

    def is_seed_drive(self, change: Change) -> bool:
        """Return whether a change is of the cloud-init drive, which the guest empties after reading
        it."""
        # the path of a disk in a pool is not recorded, and an empty drive has none
        own_paths = {own_disk.path for own_disk in self.actual.record.disks} - {None}
        return change.action == "medium" and change.new in own_paths

    def is_active(self) -> bool:
        """Return whether the guest is running."""
        return self.running is not self.actual

    def remaining_changes(self, failures: Collection[str]) -> list[Change]:
        """Return the changes that the running guest still lacks."""
        if not self.dom.isActive():
            return []
        self.slow = not failures and any(
            change.path == pending.MEMORY for change in self.now_changes
        )
        return pending.pending_changes(_running(self.dom), guest_definition.stored(self.dom))

    def waiting(self, remaining: Collection[Change]) -> list[Change]:
        """Return the changes that wait for the next start, without a balloon change in progress."""
        return [change for change in remaining if not (self.slow and change.path == pending.MEMORY)]

    def shown(self, remaining: Collection[Change], test: bool) -> list[Change]:
        """Return all changes, each with whether the running guest has it.

        These are the changes of the definition, and those that only the running guest lacked.
        """
        groups = (remaining, self.now_changes, self.config_changes)
        lacks, live_paths, defined = ({item.path for item in group} for group in groups)
        paths = {item.path for item in self.waiting(remaining)}
        visible = []
        for change in self.config_changes:
            is_live = change.live or change.path in live_paths or pending.is_plain(change.path)
            live = self.is_active() and is_live and change.path not in paths
            visible.append(change if _is_always_live(change) else replace(change, live=live))
        for change in self.now_changes:
            # the guest may never release the memory
            uncertain = test and change.path == pending.MEMORY
            if change.path not in defined and change.path not in lacks and not uncertain:
                visible.append(change)
        return visible

    def running_domain(self) -> Domain | None:
        """Return the definition of the running guest; None if the guest is off."""
        return _running(self.dom) if self.dom.isActive() else None

    def match_disks(self) -> DiskMatch | None:
        """Match the requested disks; None if the request does not cover disks."""
        detaches_named = not isinstance(self.options.detach, bool)
        if self.spec.disks is None and not (detaches_named and self.options.detach):
            return None
        self.spec.disks = self.spec.disks or []
        folder = self.tools.admission_config.disks_location
        args = (self.actual, self.spec.disks, self.options.detach, folder)
        match = DiskMatch(self.conn, self.dom, *args, self.running_domain())
        self.builds, self.sizes = match.builds, match.sizes
        self.warnings.extend(match.warnings)
        self.missing.extend(match.missing)
        return match

    def match_nics(self, context: GuestInputs) -> None:
        """Set how interfaces get their MACs, and which were derived from names."""
        if self.options.detach_nics is not None:
            self.spec.nics = [*self.kept_nics(self.options.detach_nics), *(self.spec.nics or ())]
        chosen = macs.MacAllocator(self.conn, self.actual, self.spec.nics or ())
        context.mac, context.nic_names = chosen.mac, chosen.names()
        own_macs = {(nic.mac or "").lower() for nic in self.actual.interfaces}
        for mac, guest in macs.duplicates(self.conn, self.spec.name, self.spec.nics or ()):
            self.warnings.append(macs.duplicate_warning(mac, guest))
            if mac not in own_macs:
                self.duplicates.append(f"{mac} of {guest}")

    def kept_nics(self, detached: Collection[str]) -> list[NicSpec]:
        """Return specs of the interfaces that are neither requested nor detached."""
        names = identity.nic_names(self.actual)
        keys = {word.lower() if word.count(":") == 5 else word for word in detached}
        requested = {(spec.mac or "").lower() for spec in self.spec.nics or ()}
        macs = [(nic.mac or "").lower() for nic in self.actual.interfaces]
        running = self.running_domain()
        in_use = {(nic.mac or "").lower() for nic in (running.interfaces if running else ())}
        for word in sorted(keys - {*macs, *names.values()} - in_use):
            self.missing.append(f"interface {word}")
        return [
            NicSpec(mac=mac)
            for mac in macs
            if mac not in keys | requested and names.get(mac) not in keys
        ]

    def record(self) -> None:
        """Store the record if nothing else differs, also in the running guest."""
        record = self.desired.record
        current_records = [guest_definition.stored(self.dom).record, metadata.of_domain(self.dom)]
        if record and any(plain(current) != plain(record) for current in current_records):
            metadata.write(self.dom, record)

    def apply(self, config_changes: list[Change]) -> list[str]:
        """Apply the changes; return messages about failures on the running guest.

        The stored definition is changed completely or not at all.
        """
        if config_changes:
            self.admit()
            self.fetch()
            self.store_checked(config_changes)
        always_live = [change for change in config_changes if _is_always_live(change)]
        return hotplug.apply(self.conn, self.dom, self.desired, [*self.now_changes, *always_live])

    def store_checked(self, config_changes: list[Change]) -> None:
        """Store the changes for the next start, with libvirt's errors translated."""
        undo = UndoStack()
        try:
            with translated():
                self.store(config_changes, undo)
        except errors.VirtError as exc:
            if not undo.failed:
                raise
            raise type(exc)(f"{exc}; could not undo: {'; '.join(undo.failed)}") from exc

    def store(self, config_changes: list[Change], undo: UndoStack) -> None:
        """Create the disks and define the guest with them, or undo both."""
        new_builds = [build for build in self.builds if build.make]
        with undo:
            note, growth = None, None
            if new_builds:
                note = disk_journal.DiskJournal(self.spec.name, "virt.update", new_builds)
                undo.push("remove the record of created disks", note.end, undo.failed)
                growth = self.make(new_builds, undo, note)
            with self.tools.admission_config.lock():
                self.require_unchanged()
                if growth is None:
                    self.admit()
                if any(change.action != "resize" for change in config_changes):
                    undo.push("restore its definition", self.conn.defineXML, self.actual.tostring())
                    self.dom = lookup.define(self.conn, self.desired.tostring())
                if growth is not None:
                    growth.release()
            undo.success()
        if note:
            note.end()

    def make(
        self, builds: list[DiskBuild], undo: UndoStack, note: DiskJournal
    ) -> GrowthReservation:
        """Create disks without the admission lock; return the reservation of their capacity."""
        request, current_request = self.requests()
        kib = resources.promised_kib(request) - resources.promised_kib(current_request)
        locations = [(os.path.dirname(path), size) for path, size in disks.folder_bytes(builds)]
        locations += disks.pool_bytes(builds).items()
        with self.tools.admission_config.lock():
            self.require_unchanged()
            self.admit()
            growth = reservation.GrowthReservation(
                self.spec.name, kib, request.vcpus - current_request.vcpus, locations
            )
            undo.push("release the reservation", growth.release)
        with disks.images_unchanged(builds):
            for build in builds:
                disks.make(self.conn, build, undo, growth.renew, note=note)
        return growth

    def requests(self) -> tuple[PlacementRequest, PlacementRequest]:
        """Return the PlacementRequests of the guest after and before the update."""
        desired_request = admission.request_of(self.desired, self.builds)
        return desired_request, admission.request_of(self.actual)

    def require_unchanged(self) -> None:
        """Raise DefinitionChanged if the definition has changed since the comparison."""
        if guest_definition.stored(self.dom).tostring() != self.actual.tostring():
            raise DefinitionChanged(
                f"{self.spec.name} is being changed through libvirt by another program: "
                "nothing was changed; try again"
            )

    def admit(self) -> None:
        """Raise Refused if the host has no capacity for the growth of the guest."""
        disks.refuse_in_use(self.conn, self.builds, self.spec.name)
        request, current_request = self.requests()
        growth = {
            "memory": resources.promised_kib(request) > resources.promised_kib(current_request)
            or request.page_kib != current_request.page_kib,
            "vcpu": request.vcpus > current_request.vcpus,
            "bridges": request.bridges - current_request.bridges,
            "networks": request.networks - current_request.networks,
            "disk": self.builds or self.sizes,
            "pools": self.builds or self.sizes,
        }
        filters = [name for name, grows in growth.items() if grows]
        if filters:
            request = replace(request, disks=(*request.disks, *self.grown()))
            admission.check(
                self.conn, self.tools.admission_config, request, is_new=False, filter_names=filters
            )

    def grown(self) -> Iterator[facts.DiskFootprint]:
        """Yield the growth of existing disks as DiskFootprints."""
        for disk in self.actual.disks:
            if disk.target in self.sizes:
                old_bytes, new_bytes = self.sizes[disk.target]
                growth = resize.disk_growth(disk.source, new_bytes - old_bytes)
                if growth.path or growth.pool:
                    yield growth

    def fetch(self) -> None:
        """Download the images of new disks, and kernels."""
        kernels.fetch(self.kernels, self.tools)
        for build in self.builds:
            if build.make and build.spec.image:
                build.image = self.tools.image(self.conn, build.spec)
                disks.check_image_size(build)


class DefinitionChanged(errors.OperationFailed):
    """The definition changed after the comparison."""


def _is_always_live(change: Change) -> bool:
    """Return whether the change is applied in the same way to running and stopped guests."""
    return change.subject in ("autostart", "metadata", "os") or change.action == "resize"


def result(
    change_list: list[Change],
    failures: list[str],
    warnings: Collection[str] = (),
    missing: Collection[str] = (),
    absent: Collection[str] = (),
    duplicates: Collection[str] = (),
) -> dict[str, Any]:
    """Return the answer of virt.update."""
    status: dict[str, Any] = {"definition": bool(change_list)}
    for device in ("disk", "interface"):
        status[device] = {"attached": [], "detached": [], "updated": []}
    for change in change_list:
        kind = _KINDS.get(change.subject)
        if kind and change.action in _RESULT_KEYS:
            entry = status.setdefault(kind, {"attached": [], "detached": [], "updated": []})
            if change.xml not in entry[_RESULT_KEYS[change.action]]:
                entry[_RESULT_KEYS[change.action]].append(change.xml)
        elif change.subject in ("cpu", "mem"):
            status[change.subject] = True
    status["changes"] = [change.show() for change in change_list]
    if failures:
        status["errors"] = failures
    if warnings:
        status["warnings"] = list(warnings)
    if missing:
        status["missing"] = list(missing)
    if absent:
        status["absent"] = list(absent)
    if duplicates:
        status["duplicates"] = list(duplicates)
    return status


def update(
    conn: libvirt.virConnect, spec: GuestSpec, tools: Tools, options: UpdateOptions
) -> dict[str, Any]:
    """Update the guest of a GuestSpec; see ``virt.update``."""
    with translated(f"update {spec.name}"):
        if options.test:
            return _attempt(conn, spec, tools, options)
        with tools.admission_config.guest("virt.update", spec.name):
            creation.require_complete(lookup.lookup(conn, spec.name), "update")
            disk_journal.remove(conn, spec.name)
            reservation.forget(spec.name)
            for _ in range(ATTEMPTS - 1):
                with contextlib.suppress(DefinitionChanged):
                    return _attempt(conn, copy.deepcopy(spec), tools, options)
            return _attempt(conn, spec, tools, options)


def _attempt(
    conn: libvirt.virConnect, spec: GuestSpec, tools: Tools, options: UpdateOptions
) -> dict[str, Any]:
    guest_update = Update(conn, spec, tools, options)
    config_changes = guest_update.compare()
    if config_changes and saved_memory.exists(guest_update.dom):
        guest_update.warnings.append(
            f"{spec.name} has saved memory: its next start resumes that memory with the "
            "definition it was saved with, and the changes apply from the start after "
            f"that; to discard the saved memory, run 'virsh managedsave-remove {spec.name}'"
        )
    if options.test:
        if config_changes:
            guest_update.admit()
            tools.inspect_images(conn, guest_update.builds)
        failures, now_changes = list[str](), guest_update.now_changes
        remaining = [change for change in guest_update.lacking if change not in now_changes]
    else:
        failures = []
        if config_changes or guest_update.now_changes:
            failures = guest_update.apply(config_changes)
        guest_update.record()
        remaining = guest_update.remaining_changes(failures)
    shown = guest_update.shown(remaining, options.test)
    missing = guest_update.missing
    not_there = (f"{spec.name} has no {device} to detach" for device in missing)
    warnings = [*guest_update.warnings, *not_there]
    absent, duplicates = guest_update.absent, guest_update.duplicates
    status = result(shown, failures, warnings, missing, absent, duplicates)
    if guest_update.is_active():
        paths = {change.path for change in remaining}
        offline = [change for change in shown if not (change.live or change.path in paths)]
        deferred = [change for change in offline if not _is_always_live(change)]
        pending.add_to_answer(status, [*guest_update.waiting(remaining), *deferred])
    return status
