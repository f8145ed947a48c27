"""In-place restore: replace an existing guest, or one of its disks, by a backup.

New files are created beside the old ones, then libvirt replaces the definition atomically. The old
definition and disks are kept until the restore is confirmed or undone. So an interruption leaves
either the old or the new guest, complete.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.backup.export import guest_state, live_restore_server, replaced_guest
from saltvirt.backup.export.replaced_guest import ReplacedGuest
from saltvirt.backup.export.restore import RestoreBuilder, disk_path
from saltvirt.backup.model.answers import (
    InPlaceCheck,
    RestoredDisk,
    ShownBackup,
    ShownDisk,
    UndoResult,
)
from saltvirt.design import identity
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import creation, lifecycle, lookup, metadata, purge
from saltvirt.host.domain.purge import PurgePlan
from saltvirt.host.migration import departures, move_journal
from saltvirt.host.provision import admission, disk_journal, disks
from saltvirt.host.provision.guest_builder import reset_genid
from saltvirt.host.storage import deletion, files, usage
from saltvirt.host.storage import identity as identities
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from saltvirt.answers.created import CreatedGuest
    from saltvirt.host.provision.admission import AdmissionConfig
    from saltvirt.host.provision.guest_builder import GuestRequest, Tools
    from saltvirt.placement.facts import PlacementRequest
    from saltvirt.xml.domain.metadata import GuestRecord

CONFIRM, UNDO = "virt.backup_confirm", "virt.backup_undo"


class InPlaceRestore(RestoreBuilder):
    """Restore over the existing guest. stop: power it off if necessary. only_target: the one
    disk to restore; None: all disks and the definition."""

    def __init__(
        self,
        conn: libvirt.virConnect,
        guest: GuestRequest,
        tools: Tools,
        shown: ShownBackup,
        certificates: str,
        stop: bool,
        only_target: str | None = None,
    ) -> None:
        super().__init__(conn, guest, tools, shown, certificates, True)
        self.may_stop, self.only_target = stop, only_target

    def run(self) -> CreatedGuest:
        name = self.guest.name
        with self.tools.admission_config.guest(self.VERB, name), translated(f"restore {name}"):
            self.dom = lookup.lookup(self.conn, name)
            creation.require_complete(self.dom, "restore in place")
            for reason in _refusals(self.conn, self.dom, self.may_stop):
                raise errors.Refused(reason)
            self.original_xml = _definition(self.dom)
            self.current = Domain.fromstring(self.original_xml)
            if self.current.uuid != self.model.uuid:
                raise errors.Refused(
                    f"{name} is not the guest of the backup, which has the UUID "
                    f"{self.model.uuid}: restore another guest with new=NAME"
                )
            disk_journal.remove(self.conn, name)
            self.check()
            return self.make_atomically()

    def refuse_replaced(self) -> None:
        """Not applicable: the existing guest is checked instead."""

    def warn_devices(self) -> None:
        """The guest has these devices already."""

    def is_selected(self, target: str) -> bool:
        return self.only_target in (None, target)

    def choose_path(self, target: str) -> str:
        return _unused_path(self.tools, self.guest.name, target)

    def check(self) -> None:
        if self.only_target:
            _shown_disk(self.shown, self.only_target)
            if self.only_target not in {disk.target for disk in self.current.disks}:
                raise errors.NotFound(
                    f"{self.guest.name} has no disk {self.only_target} on this host"
                )
        super().check()

    def admit(self, definition: Domain) -> PlacementRequest:
        request = admission.request_of(definition, self.builds)
        admission.check(self.conn, self.tools.admission_config, request, is_new=False)
        return request

    def make(self) -> CreatedGuest:
        note = disk_journal.DiskJournal(self.guest.name, self.VERB, self.builds)
        self.undo.push("forget the new disks", lambda: note.end(self.undo.failed))
        self.claim = note.mark
        for build in self.builds:
            self.tools.report_step("disk", f"creating disk {build.spec.name}", path=build.path)
            disks.make(self.conn, build, self.undo, note=note)
        state = {} if self.only_target else self.read_state()
        with self.tools.admission_config.lock():
            self._power_off()
            self._switch(state)
        note.end()
        return self.result(None)

    def put_state(self, files: dict[str, bytes]) -> None:
        """Replace the firmware variables and TPM state; save the previous ones."""
        name, present = self.guest.name, guest_state.state_paths(self.conn, self.dom)
        files = self.usable_state(files)
        for kind in [] if self.only_target else guest_state.missing_kinds(self.model, files):
            previous = self.previous_state.get(kind)
            if previous and previous == present.get(kind):
                self.tools.warn(f"{name} keeps its {kind}: {self.no_state_reason}")
                continue
            stays = f"; the previous files stay in {previous} for {UNDO}" if previous else ""
            self.tools.warn(f"{self.initial_state(kind, present.get(kind))}{stays}")
        saved = guest_state.save_locations(self.dom, files)
        if saved:
            self.undo.push("restore the firmware variables", guest_state.restore_saved, saved)
            replaced_guest.store(replace(self.replaced, state=saved))
            guest_state.install(self.dom, files, saved)
        if self.replaced.unfinished:
            replaced_guest.store(replace(self.replaced, state=saved, unfinished=False))

    def _power_off(self) -> None:
        if not self.dom.isActive():
            return
        for reason in _refusals(self.conn, self.dom, self.may_stop):
            raise errors.Refused(reason)
        self._warn_lost_disks()
        self.tools.report_step("stop", f"powering {self.guest.name} off")
        self.undo.push(f"start {self.guest.name} again", lifecycle.start, self.dom)
        lifecycle.stop(self.dom)

    def _warn_lost_disks(self) -> None:
        """Warn about disks that only the running guest has."""
        targets = {disk.target for disk in self.current.disks}
        for disk in Domain.fromstring(self.dom.XMLDesc(0)).disks:
            if disk.target not in targets and not disk.removable_medium:
                self.tools.warn(
                    f"disk {disk.target}, {disk.source.location()}, was attached to the running "
                    f"{self.guest.name} only: its file stays, but the guest no longer has it"
                )

    def _switch(self, state: dict[str, bytes]) -> None:
        name, uuid = self.guest.name, self.dom.UUIDString()
        tree = ElementTree.fromstring(self.original_xml)
        old = [path for path, _format, reason in purge.own_disks(self.conn, tree) if reason is None]
        # prevent a start meanwhile
        with usage.prevent_open(self.conn, old) as users:
            for path, reason in users.items():
                if reason:
                    raise errors.OperationFailed(f"{name} was not changed: {path}: {reason}")
            if _definition(self.dom) != self.original_xml:
                raise errors.OperationFailed(f"{name} was changed meanwhile: repeat the command")
            built, created = self.definition(), tuple(build.file for build in self.builds)
            self.previous_state = guest_state.state_paths(self.conn, self.dom)
            self.undo.push("forget the previous state", replaced_guest.forget, uuid)
            retained = {files.real(path) for path in old} & _disk_paths(self.conn, built.need())
            self.replaced = ReplacedGuest(
                uuid, name, self.shown.backup_id, self.original_xml, created,
                retained=tuple(retained), unfinished=bool(state),
            )  # fmt: skip
            replaced_guest.store(self.replaced)
            self.undo.push("restore the definition", self.conn.defineXML, self.original_xml)
            self.dom = lookup.define(self.conn, built.tostring())
            self.put_state(state)
        if not {*created} <= files.paths(_tree(self.dom)):
            raise errors.OperationFailed(f"libvirt did not accept the new disks of {name}")

    def definition(self) -> Domain:
        """Return the definition of the backup, or with ``only_target`` the present one with the
        restored disk. Disks that are in no backup, such as network disks, are taken from the
        present definition."""
        if self.only_target:
            return self._with_single_disk()
        built, model_targets = super().definition(), {disk.target for disk in self.model.disks}
        has = {disk.target for disk in built.disks}
        retained = model_targets - has
        for disk in self.current.disks:
            if disk.target in retained:
                built.disks.append(disk.copy())
        self._keep_record(built.record, retained)
        identity.fill(self.model, built)  # again, for the added disks
        identity.fill(self.current, built)
        return built

    def _keep_record(self, record: GuestRecord, retained: Collection[str | None]) -> None:
        """Keep the present entries of the metadata, and the ownership of disks that are not
        replaced. retained: names of these disks."""
        now = self.current.record
        if not now:
            return
        record.entries = [item.copy() for item in now.entries]
        removed = self.current.copy()
        for disk in [item for item in removed.disks if item.target in retained]:
            removed.disks.remove(disk)
        replaced_paths = _storage_paths(self.conn, removed.need())
        for own_disk in now.disks:
            path = own_disk.path
            if own_disk.pool:
                path = files.volume_path(self.conn, own_disk.pool, own_disk.volume)
            if path and files.real(path) not in replaced_paths:
                record.disks.append(own_disk.copy())

    def _with_single_disk(self) -> Domain:
        built, build = self.current.copy(), self.builds[0]
        record = built.record
        for own_disk in [entry for entry in record.disks if entry.target == self.only_target]:
            record.disks.remove(own_disk)
        for disk in built.disks:
            if disk.target == self.only_target:
                self.attach_disk(record, disk, build.file)
        identity.carry(self.current, built)
        reset_genid(built)
        if not self.current.record:  # not created by Salt Virt
            built.record = None
        return built


def inspect(conn: libvirt.virConnect, name: str, stop: bool) -> InPlaceCheck:
    """Check whether an in-place restore is possible. Raises NotFound."""
    dom = lookup.lookup(conn, name)
    with translated(f"inspect {name}"):
        replaced = replaced_guest.load(dom.UUIDString())
        unconfirmed = replaced.backup if replaced and _is_restored(conn, dom, replaced) else None
        return InPlaceCheck(
            dom.UUIDString(), bool(dom.isActive()), tuple(_refusals(conn, dom, stop)), unconfirmed
        )


def one_disk(
    conn: libvirt.virConnect, tools: Tools, name: str, restore: RestoreBuilder, target: str
) -> RestoredDisk:
    """Restore one disk as a file beside those of the guest."""
    config = tools.admission_config
    with config.guest(RestoreBuilder.VERB, name):
        disk_journal.remove(conn, name)
        shown = _shown_disk(restore.shown, target)
        build = restore.disk_build(shown, _unused_path(tools, name, target))
        request = admission.request_of(restore.model, [build])
        admission.check(conn, config, request, is_new=False, filter_names=("disk",))
        note = disk_journal.DiskJournal(name, RestoreBuilder.VERB, [build])
        with restore.undo as undo:
            undo.push("forget the file", lambda: note.end(undo.failed))
            restore.claim = note.mark
            disks.make(conn, build, undo, note=note)
            undo.success()
        note.end()
        return RestoredDisk(build.file, shown.size_bytes)


def _shown_disk(shown: ShownBackup, target: str) -> ShownDisk:
    disk = next((candidate for candidate in shown.disks if candidate.target == target), None)
    if disk is None:
        raise errors.NotFound(f"backup {shown.backup_id} has no disk {target}")
    return disk


def undo(
    conn: libvirt.virConnect, config: AdmissionConfig, name: str, stop: bool, test: bool = False
) -> UndoResult:
    """Return the guest to its state before the restore, and remove what the restore created.

    test: only check. Raises NotFound, Refused, OperationFailed.
    """
    with config.guest(UNDO, name), translated(f"undo the restore of {name}"):
        replaced, dom = _find_replaced(conn, name)
        for reason in _undo_refusals(conn, replaced, dom, stop):
            raise errors.Refused(reason)
        if test:
            return UndoResult()
        with config.lock():
            detached = _attached_since(conn, replaced, dom)
            if dom is not None and dom.isActive() and _has_changes(conn, dom, replaced):
                lifecycle.stop(dom)
            if dom is None or _is_restored(conn, dom, replaced):
                dom = lookup.define(conn, replaced.definition)
            if _is_restored(conn, dom, replaced):
                raise errors.OperationFailed(
                    f"libvirt did not accept the previous definition of {name}"
                )
            guest_state.restore_saved(replaced.state)
            if replaced.state:  # only once: from now on these files belong to the guest
                replaced = replace(replaced, state=())
                replaced_guest.store(replaced)
        leftovers = _remove_created(conn, dom, replaced)
        if leftovers:  # a repeated call must not remove a new file with the same name
            replaced_guest.store(replace(replaced, created=tuple(leftovers)))
        else:
            disk_journal.remove(conn, name)
            replaced_guest.forget(replaced.uuid)
        return UndoResult(tuple(leftovers.values()), detached)


def _attached_since(
    conn: libvirt.virConnect, replaced: ReplacedGuest, dom: libvirt.virDomain | None
) -> tuple[str, ...]:
    """Return real paths of disks that were attached after the restore."""
    if dom is None or not _is_restored(conn, dom, replaced):
        return ()
    created = {files.real(path) for path in replaced.created}
    now = {
        files.real(path): {*files.chain_paths(path, format)}
        for tree in files.trees(dom)
        for path, format, reason in purge.own_disks(conn, tree)
        if reason is None
    }
    known_paths = created | _storage_paths(conn, replaced.tree)
    return tuple(
        sorted(
            real_path for real_path, chain in now.items() if not {real_path, *chain} & known_paths
        )
    )


def plan(conn: libvirt.virConnect, name: str, unused: Collection[str] = ()) -> PurgePlan:
    """Plan the confirmation: delete the disks that the restore removed from the guest, if they
    belong to it and are not used elsewhere."""
    replaced, dom = _find_replaced(conn, name)
    for reason in _confirm_refusals(conn, replaced, dom, name):
        raise errors.Refused(reason)
    now = files.trees(dom) if dom is not None else []
    for tree in (replaced.tree, *now):
        for source in tree.iterfind("devices/disk/source[@pool]"):
            files.require_pool(conn, source.get("pool", ""))
    used_keys = _storage_keys(conn, now)
    own_disks = {
        path: reason for path, reason in _own_disks(conn, replaced).items()
        if path not in replaced.retained and used_keys.isdisjoint(identities.keys_of(path))
    }  # fmt: skip
    used = usage.read(conn, replaced.uuid, sibling_paths=own_disks)
    delete, keep, shared = usage.decide(conn, own_disks, used, map(files.real, unused))
    own_paths = {path for path, reason in own_disks.items() if reason is None}
    return PurgePlan(delete, keep, shared, sorted(own_paths - {*delete}))


def confirm(
    conn: libvirt.virConnect, config: AdmissionConfig, name: str, unused: Collection[str] = ()
) -> PurgePlan:
    """Delete the previous disks and forget the previous state. Can be repeated after a failure.

    Raises NotFound, Refused, OperationFailed.
    """
    with config.guest(CONFIRM, name), translated(f"confirm the restore of {name}"):
        with deletion.deletion_plan(conn, lambda: plan(conn, name, unused)) as (todo, paths):
            for path in paths:
                purge.delete_storage(conn, path)
        todo.delete = paths
        replaced = _find_replaced(conn, name)[0]
        guest_state.discard_saved(replaced.state)
        replaced_guest.forget(replaced.uuid)
        return todo


def _own_disks(conn: libvirt.virConnect, replaced: ReplacedGuest) -> dict[str, str | None]:
    """Map the real path of each previous disk to the reason why it is kept; None if it belongs to
    the guest. Disks that it created, but that were detached before the restore, are not
    included."""
    tree = replaced.tree
    created = {files.real(path) for path in metadata.disk_paths(conn, [tree])}
    is_managed = bool(metadata.of_tree(tree))
    reasons: dict[str, str | None] = {}
    for path, format, reason in purge.own_disks(conn, tree):
        chain = files.chain_paths(path, format) if path.startswith("/") else [path]
        own_images = [image for image in chain if image in created]
        above = itertools.takewhile(lambda image: image not in created, chain) if own_images else ()
        reasons |= dict.fromkeys([*above, *own_images])
        if not own_images:
            reasons[files.real(path)] = reason or (purge.NOT_MADE if is_managed else None)
    return reasons


def _find_replaced(
    conn: libvirt.virConnect, name: str
) -> tuple[ReplacedGuest, libvirt.virDomain | None]:
    """Return the saved guest and its domain; None if the domain does not exist, or if another guest
    has its name. Raises NotFound, Refused."""
    dom = lookup.find(conn, name)
    matches = [
        guest
        for guest in [replaced_guest.load(dom.UUIDString()) if dom is not None else None]
        if guest
    ]
    if not matches:  # the guest is gone, and another guest may have its name
        local_uuids = {*lookup.uuids(conn).values()}
        matches = [
            guest
            for guest in replaced_guest.load_all()
            if guest.name == name and guest.uuid not in local_uuids
        ]
        dom = None
    if not matches:
        raise errors.NotFound(
            f"{name} on {conn.getHostname()} has no in-place restore to confirm or undo"
        )
    if len(matches) > 1:
        raise errors.Refused(
            f"the previous states of two guests with the name {name} are saved: see "
            f"{replaced_guest.FOLDER}"
        )
    return matches[0], dom


def _is_restored(conn: libvirt.virConnect, dom: libvirt.virDomain, replaced: ReplacedGuest) -> bool:
    """Whether the guest has the restored disks, directly or as backing files."""
    return not {files.real(path) for path in replaced.created}.isdisjoint(
        _storage_paths(conn, _tree(dom))
    )


def _has_changes(conn: libvirt.virConnect, dom: libvirt.virDomain, replaced: ReplacedGuest) -> bool:
    """Whether an undo has to do more than delete files."""
    return bool(replaced.state) or _is_restored(conn, dom, replaced)


def _storage_paths(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    """Return the real paths of all storage in a definition, with backing files."""
    paths = {files.real(path) for path in files.paths(tree) | files.volume_paths(conn, tree)}
    for path, format in files.named_paths(conn, tree):
        paths |= {*files.chain_paths(path, format)}
    return paths


def _storage_keys(conn: libvirt.virConnect, trees: Collection[ElementTree.Element]) -> set[object]:
    """Return the keys of all storage in definitions, with backing files."""
    return {
        key
        for tree in trees
        for path in _storage_paths(conn, tree)
        for key in identities.keys_of(path)
    }


def _unknown_state(
    conn: libvirt.virConnect, replaced: ReplacedGuest, dom: libvirt.virDomain | None
) -> list[str]:
    """Return a refusal if the guest has neither the previous nor the restored disks."""
    if dom is None or _is_restored(conn, dom, replaced):
        return []
    if _disk_paths(conn, replaced.tree) <= _disk_paths(conn, _tree(dom)):
        return []
    return [
        f"{dom.name()} has neither the disks from before the restore of {replaced.backup} nor "
        "the restored ones: check which disks it should have, then remove "
        f"{replaced_guest.FOLDER}/{replaced.uuid}.json, which contains the previous definition"
    ]


def _disk_paths(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    return {files.real(path) for path, _, reason in purge.own_disks(conn, tree) if reason is None}


def _refusals(conn: libvirt.virConnect, dom: libvirt.virDomain, stop: bool) -> list[str]:
    """Return what prevents an in-place restore."""
    name, reasons = dom.name(), _guest_refusals(dom)
    replaced = replaced_guest.load(dom.UUIDString())
    if replaced:
        reasons += _unknown_state(conn, replaced, dom)
    if replaced and _is_restored(conn, dom, replaced):
        reasons.append(
            f"{replaced.backup} was already restored over {name}, and the previous state is "
            f"still saved: delete it with {CONFIRM} {name}, or return to it with {UNDO} {name}"
        )
    if dom.isActive() and not stop:
        reasons.append(
            f"{name} is {lookup.state(dom)}: stop it first, or use stop=True to power it off"
        )
    return reasons


def _guest_refusals(dom: libvirt.virDomain) -> list[str]:
    name, reasons = dom.name(), []
    try:
        move_journal.require_startable(dom)
    except errors.OperationFailed as exc:
        reasons.append(exc.text)
    if not dom.isPersistent():
        reasons.append(f"{name} is transient: it has no stored definition to save")
    if dom.hasManagedSaveImage():
        reasons.append(
            f"{name} has saved memory, which belongs to its present disks: start it first"
        )
    if dom.snapshotNum():
        reasons.append(
            f"{name} has snapshots, which belong to its present disks: delete them first, or "
            "restore another guest (new=NAME)"
        )
    return reasons


def _confirm_refusals(
    conn: libvirt.virConnect, replaced: ReplacedGuest, dom: libvirt.virDomain | None, name: str
) -> list[str]:
    reasons = _unknown_state(conn, replaced, dom)
    if reasons or dom is None:
        return reasons
    if not _is_restored(conn, dom, replaced):
        return [
            f"{name} was not changed, because the restore of {replaced.backup} did not complete: "
            f"remove its files with {UNDO}"
        ]
    if replaced.unfinished:
        return [
            f"the restore of {replaced.backup} was interrupted before the firmware variables and "
            f"the TPM state of {name} were in place: run {UNDO} {name}, then restore it again"
        ]
    if live_restore_server.pending_disks(name, _tree(dom)):
        return [
            f"{name} still runs from the backup {replaced.backup}: wait with salt-run "
            f"virt.backup_instant {name}, or undo the restore with {UNDO} {name}"
        ]
    return []


def _undo_refusals(
    conn: libvirt.virConnect, replaced: ReplacedGuest, dom: libvirt.virDomain | None, stop: bool
) -> list[str]:
    reasons = [
        f"{path} is missing: the previous state of {replaced.name} cannot be restored"
        for path, reason in _own_disks(conn, replaced).items()
        if reason is None and not usage.is_there(conn, path)
    ]
    if dom is None:
        if lookup.find(conn, replaced.name) is not None:
            reasons.append(
                f"another guest now has the name {replaced.name}: rename or purge it first, or "
                f"delete what is saved of the former guest with {CONFIRM} {replaced.name}"
            )
        if departures.departure_reason(replaced.name):
            reasons.append(
                f"{replaced.name} was moved to another host, and an undo would create it twice: "
                f"move it back first, or delete what is saved on this host with {CONFIRM} "
                f"{replaced.name}"
            )
        return reasons
    reasons += _unknown_state(conn, replaced, dom)
    if not _has_changes(conn, dom, replaced):
        return reasons
    if dom.name() != replaced.name:
        reasons.append(
            f"{dom.name()} had the name {replaced.name} before the restore: rename it back first"
        )
    if dom.isActive() and not stop:
        reasons.append(
            f"{dom.name()} is {lookup.state(dom)}: stop it first, or use stop=True to power it off"
        )
    return reasons + _guest_refusals(dom)


def _remove_created(
    conn: libvirt.virConnect, dom: libvirt.virDomain, replaced: ReplacedGuest
) -> dict[str, str]:
    """Delete the files that the restore created; map those that remain to the reason.

    A file is in use if the guest's live or stored definition contains it. Definitions in
    checkpoints of later backups do not count.
    """
    leftovers, used_keys = {}, _storage_keys(conn, files.trees(dom))
    for path in replaced.created:
        if not used_keys.isdisjoint(identities.keys_of(path)):
            leftovers[path] = f"{path} stays, because {dom.name()} uses it"
            continue
        try:
            with deletion.ensure_unused(conn, path, exclude_uuid=replaced.uuid):
                purge.delete_file(path)
        except errors.OperationFailed as exc:
            leftovers[path] = exc.text
    return leftovers


def _unused_path(tools: Tools, name: str, target: str) -> str:
    paths = (disk_path(tools, name, target, number) for number in itertools.count(1))
    return next(path for path in paths if not os.path.lexists(path))


def _definition(dom: libvirt.virDomain) -> str:
    secure = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE
    xml: str = dom.XMLDesc(secure)
    return xml


def _tree(dom: libvirt.virDomain) -> ElementTree.Element:
    return ElementTree.fromstring(_definition(dom))
