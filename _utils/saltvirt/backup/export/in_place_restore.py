"""A backup takes the place of the guest that is there, or of one of its disks.

New files are made beside the old ones, then the definition is replaced: one step of libvirt's. Both
the old definition and the old disks stay until somebody confirms or undoes it, so whoever is killed
leaves the one guest or the other, whole.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.backup.export import guest_state, live_restore_server
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
from saltvirt.host.domain import creation, lifecycle, lookup, metadata, purge, replaced_guest
from saltvirt.host.domain.purge import PurgePlan
from saltvirt.host.domain.replaced_guest import ReplacedGuest
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
    """The guest that is there becomes that of the backup. stop: it may be powered off for it. only:
    the target of the one disk that is restored; None: all, and the definition."""

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
            creation.require_complete(self.dom, "restore a backup over")
            for reason in _refusals(self.conn, self.dom, self.may_stop):
                raise errors.Refused(reason)
            self.original_xml = _definition(self.dom)
            self.current = Domain.fromstring(self.original_xml)
            if self.current.uuid != self.model.uuid:
                raise errors.Refused(
                    f"{name} is another guest than that of the backup, which had the UUID "
                    f"{self.model.uuid}: new=NAME restores beside it"
                )
            disk_journal.remove(self.conn, name)
            self.check()
            return self.make_atomically()

    def refuse_replaced(self) -> None:
        """That is asked of the guest that is there."""

    def warn_devices(self) -> None:
        """It has them already."""

    def is_selected(self, target: str) -> bool:
        return self.only_target in (None, target)

    def choose_path(self, target: str) -> str:
        return _unused_path(self.tools, self.guest.name, target)

    def check(self) -> None:
        if self.only_target:
            _shown_disk(self.shown, self.only_target)
            if self.only_target not in {disk.target for disk in self.current.disks}:
                raise errors.NotFound(f"{self.guest.name} has no disk {self.only_target} here")
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
            self.tools.report_step("disk", f"making disk {build.spec.name}", path=build.path)
            disks.make(self.conn, build, self.undo, note=note)
        state = {} if self.only_target else self.read_state()
        with self.tools.admission_config.lock():
            self._power_off()
            self._switch(state)
        note.end()
        return self.result(None)

    def put_state(self, files: dict[str, bytes]) -> None:
        """What it has of its own makes way, and is put down with how it was."""
        name, present = self.guest.name, guest_state.state_paths(self.conn, self.dom)
        files = self.usable_state(files)
        for kind in [] if self.only_target else guest_state.missing_kinds(self.model, files):
            previous = self.previous_state.get(kind)
            if previous and previous == present.get(kind):
                self.tools.warn(f"{name} keeps its {kind}: {self.no_state_reason}")
                continue
            stays = f"; what it had stays in {previous} for {UNDO}" if previous else ""
            self.tools.warn(f"{self.initial_state(kind, present.get(kind))}{stays}")
        saved = guest_state.save_locations(self.dom, files)
        if saved:
            self.undo.push("put back the firmware variables", guest_state.restore_saved, saved)
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
        """Names disks that the running guest alone has: they end with it."""
        targets = {disk.target for disk in self.current.disks}
        for disk in Domain.fromstring(self.dom.XMLDesc(0)).disks:
            if disk.target not in targets and not disk.removable_medium:
                self.tools.warn(
                    f"disk {disk.target}, {disk.source.location()}, which {self.guest.name} had "
                    f"only "
                    "until it was powered off, stays, and is attached to it no more"
                )

    def _switch(self, state: dict[str, bytes]) -> None:
        name, uuid = self.guest.name, self.dom.UUIDString()
        tree = ElementTree.fromstring(self.original_xml)
        old = [path for path, _format, reason in purge.own_disks(self.conn, tree) if reason is None]
        # nobody starts it meanwhile
        with usage.prevent_open(self.conn, old) as users:
            for path, reason in users.items():
                if reason:
                    raise errors.OperationFailed(f"{name} stays as it is: {path}: {reason}")
            if _definition(self.dom) != self.original_xml:
                raise errors.OperationFailed(f"{name} was changed meanwhile: begin again")
            built, created = self.definition(), tuple(build.file for build in self.builds)
            self.previous_state = guest_state.state_paths(self.conn, self.dom)
            self.undo.push("forget how it was", replaced_guest.forget, uuid)
            retained = {files.real(path) for path in old} & _disk_paths(self.conn, built.need())
            self.replaced = ReplacedGuest(
                uuid, name, self.shown.ident, self.original_xml, created, stay=tuple(retained),
                unfinished=bool(state),
            )  # fmt: skip
            replaced_guest.store(self.replaced)
            self.undo.push("define it as it was", self.conn.defineXML, self.original_xml)
            self.dom = lookup.define(self.conn, built.tostring())
            self.put_state(state)
        if not {*created} <= files.paths(_tree(self.dom)):
            raise errors.OperationFailed(f"libvirt did not take the new disks of {name}")

    def definition(self) -> Domain:
        """That of the backup, or with ``only`` that which is there. What is in no backup, such as a
        disk of a server, is as it is now."""
        if self.only_target:
            return self._with_single_disk()
        built, model_targets = super().definition(), {disk.target for disk in self.model.disks}
        has = {disk.target for disk in built.disks}
        retained = model_targets - has
        for disk in self.current.disks:
            if disk.target in retained:
                built.disks.append(disk.copy())
        self._keep_record(built.record, retained)
        identity.fill(self.model, built)  # once more: of those disks, too
        identity.fill(self.current, built)
        return built

    def _keep_record(self, record: GuestRecord, retained: Collection[str | None]) -> None:
        """The entries are those of today, not of the day of the backup, and disks of the guest's
        own that are not put aside stay its own. retained: the targets of those that it keeps."""
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
        if not self.current.record:  # it is none of ours: all that it writes to is its own
            built.record = None
        return built


def inspect(conn: libvirt.virConnect, name: str, stop: bool) -> InPlaceCheck:
    """What a restore over a guest would find. Raises NotFound."""
    dom = lookup.lookup(conn, name)
    with translated(f"look at {name}"):
        replaced = replaced_guest.load(dom.UUIDString())
        unconfirmed = replaced.backup if replaced and _is_restored(conn, dom, replaced) else None
        return InPlaceCheck(
            dom.UUIDString(), bool(dom.isActive()), tuple(_refusals(conn, dom, stop)), unconfirmed
        )


def one_disk(
    conn: libvirt.virConnect, tools: Tools, name: str, restore: RestoreBuilder, target: str
) -> RestoredDisk:
    """A disk of a backup as a file, beside the guest's own."""
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
        raise errors.NotFound(f"the backup {shown.ident} has no disk {target}")
    return disk


def undo(
    conn: libvirt.virConnect, config: AdmissionConfig, name: str, stop: bool, test: bool = False
) -> UndoResult:
    """The guest is as it was before the backup took its place; what was made for that goes. test:
    only raises why not. Raises NotFound, Refused, OperationFailed."""
    with config.guest(UNDO, name), translated(f"bring {name} back"):
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
                raise errors.OperationFailed(f"libvirt did not take {name} as it was")
            guest_state.restore_saved(replaced.state)
            if replaced.state:  # once: what is there from now on is the guest's
                replaced = replace(replaced, state=())
                replaced_guest.store(replaced)
        leftovers = _remove_created(conn, dom, replaced)
        if leftovers:  # who asks again must not meet another file of that name
            replaced_guest.store(replace(replaced, made=tuple(leftovers)))
        else:
            disk_journal.remove(conn, name)
            replaced_guest.forget(replaced.uuid)
        return UndoResult(tuple(leftovers.values()), detached)


def _attached_since(
    conn: libvirt.virConnect, replaced: ReplacedGuest, dom: libvirt.virDomain | None
) -> tuple[str, ...]:
    """Real paths of disks that the guest has only since the backup took its place."""
    if dom is None or not _is_restored(conn, dom, replaced):
        return ()
    created = {files.real(path) for path in replaced.made}
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
    """What goes when it is confirmed: the disks that the backup took out of the guest, if they are
    its own and nobody uses them. Changes nothing."""
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
        if path not in replaced.stay and used_keys.isdisjoint(identities.keys_of(path))
    }  # fmt: skip
    used = usage.read(conn, replaced.uuid, sibling_paths=own_disks)
    delete, keep, shared = usage.decide(conn, own_disks, used, map(files.real, unused))
    own_paths = {path for path, reason in own_disks.items() if reason is None}
    return PurgePlan(delete, keep, shared, sorted(own_paths - {*delete}))


def confirm(
    conn: libvirt.virConnect, config: AdmissionConfig, name: str, unused: Collection[str] = ()
) -> PurgePlan:
    """Deletes them, and how the guest was is kept no more. After a failure it can be called again.
    Raises NotFound, Refused, OperationFailed."""
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
    """Real path of each disk that was attached to it to why it stays, None where it is its own. A
    disk that it had made, and that was detached by then, is not for us to delete."""
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
    """What is kept of a guest, and the guest, None where it is gone, also if another one has its
    name. Raises NotFound, Refused."""
    dom = lookup.find(conn, name)
    matches = [
        guest
        for guest in [replaced_guest.load(dom.UUIDString()) if dom is not None else None]
        if guest
    ]
    if not matches:  # of a guest that is gone, whose name another one may have by now
        local_uuids = {*lookup.uuids(conn).values()}
        matches = [
            guest
            for guest in replaced_guest.load_all()
            if guest.name == name and guest.uuid not in local_uuids
        ]
        dom = None
    if not matches:
        raise errors.NotFound(
            f"no backup has taken the place of {name} on {conn.getHostname()}, or it was confirmed"
        )
    if len(matches) > 1:
        raise errors.Refused(f"two guests called {name} are kept: see {replaced_guest.FOLDER}")
    return matches[0], dom


def _is_restored(conn: libvirt.virConnect, dom: libvirt.virDomain, replaced: ReplacedGuest) -> bool:
    """Whether the guest has the disks that were made, or stands on them."""
    return not {files.real(path) for path in replaced.made}.isdisjoint(
        _storage_paths(conn, _tree(dom))
    )


def _has_changes(conn: libvirt.virConnect, dom: libvirt.virDomain, replaced: ReplacedGuest) -> bool:
    """Whether an undo has more to do than to delete what was made."""
    return bool(replaced.state) or _is_restored(conn, dom, replaced)


def _storage_paths(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    """Real paths of all that a definition names as storage, with what that stands on."""
    paths = {files.real(path) for path in files.paths(tree) | files.volume_paths(conn, tree)}
    for path, format in files.named_paths(conn, tree):
        paths |= {*files.chain_paths(path, format)}
    return paths


def _storage_keys(conn: libvirt.virConnect, trees: Collection[ElementTree.Element]) -> set[object]:
    """The keys of all that definitions name as storage, with what that stands on."""
    return {
        key
        for tree in trees
        for path in _storage_paths(conn, tree)
        for key in identities.keys_of(path)
    }


def _unknown_state(
    conn: libvirt.virConnect, replaced: ReplacedGuest, dom: libvirt.virDomain | None
) -> list[str]:
    """Why nobody knows which of the two the guest is: it has the disks of neither."""
    if dom is None or _is_restored(conn, dom, replaced):
        return []
    if _disk_paths(conn, replaced.tree) <= _disk_paths(conn, _tree(dom)):
        return []
    return [
        f"{dom.name()} has other disks by now than before {replaced.backup} took its place, and "
        f"than "
        f"that made: look which it is to have; {replaced_guest.FOLDER}/{replaced.uuid}.json has "
        f"how it "
        f"was, and "
        "is yours to remove"
    ]


def _disk_paths(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    return {files.real(path) for path, _, reason in purge.own_disks(conn, tree) if reason is None}


def _refusals(conn: libvirt.virConnect, dom: libvirt.virDomain, stop: bool) -> list[str]:
    """Why no backup can take its place now."""
    name, reasons = dom.name(), _guest_refusals(dom)
    replaced = replaced_guest.load(dom.UUIDString())
    if replaced:
        reasons += _unknown_state(conn, replaced, dom)
    if replaced and _is_restored(conn, dom, replaced):
        reasons.append(
            f"{replaced.backup} has taken the place of {name} already, and how it was is still "
            f"kept: "
            f"{CONFIRM} {name} deletes that, {UNDO} {name} brings it back"
        )
    if dom.isActive() and not stop:
        reasons.append(f"{name} is {lookup.state(dom)}: stop it first; stop=True powers it off")
    return reasons


def _guest_refusals(dom: libvirt.virDomain) -> list[str]:
    name, reasons = dom.name(), []
    try:
        move_journal.require_startable(dom)
    except errors.OperationFailed as exc:
        reasons.append(exc.text)
    if not dom.isPersistent():
        reasons.append(f"{name} is transient: it has no definition that could be put aside")
    if dom.hasManagedSaveImage():
        reasons.append(f"{name} has saved memory, which belongs to its disks: start it first")
    if dom.snapshotNum():
        reasons.append(
            f"{name} has snapshots, which belong to its disks: delete them first, or restore "
            "beside it (new=NAME)"
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
            f"{name} is as it was: the restore of {replaced.backup} did not come to its end; "
            f"{UNDO} "
            "takes away what it made"
        ]
    if replaced.unfinished:
        return [
            f"the restore of {replaced.backup} ended before the firmware variables and the TPM "
            f"state "
            f"of {name} were in place: {UNDO} {name} brings back what it had, then restore it again"
        ]
    if live_restore_server.pending_disks(name, _tree(dom)):
        return [
            f"{name} still stands on the backup {replaced.backup}, so what it had stays: salt-run "
            f"virt.backup_instant {name} brings its blocks in, {UNDO} {name} brings it back"
        ]
    return []


def _undo_refusals(
    conn: libvirt.virConnect, replaced: ReplacedGuest, dom: libvirt.virDomain | None, stop: bool
) -> list[str]:
    reasons = [
        f"{path} is gone: {replaced.name} as it was cannot be brought back"
        for path, reason in _own_disks(conn, replaced).items()
        if reason is None and not usage.is_there(conn, path)
    ]
    if dom is None:
        if lookup.find(conn, replaced.name) is not None:
            reasons.append(
                f"{replaced.name} is another guest by now: rename or purge that first, or "
                f"{CONFIRM} "
                f"{replaced.name} deletes what is kept of the former"
            )
        if departures.departure_reason(replaced.name):
            reasons.append(
                f"{replaced.name} was moved to another host: as it was it would be there twice; "
                f"bring "
                f"it back first, or {CONFIRM} {replaced.name} deletes what is kept here"
            )
        return reasons
    reasons += _unknown_state(conn, replaced, dom)
    if not _has_changes(conn, dom, replaced):
        return reasons
    if dom.name() != replaced.name:
        reasons.append(f"{dom.name()} was called {replaced.name} then: rename it back first")
    if dom.isActive() and not stop:
        reasons.append(
            f"{dom.name()} is {lookup.state(dom)}: stop it first; stop=True powers it off"
        )
    return reasons + _guest_refusals(dom)


def _remove_created(
    conn: libvirt.virConnect, dom: libvirt.virDomain, replaced: ReplacedGuest
) -> dict[str, str]:
    """Deletes the files that were made for the guest, which has them no more; each that is still
    there to why. Of the guest's own definitions those count by which it runs and starts next: a
    checkpoint, of a backup that was made meanwhile, names the files, too."""
    leftovers, used_keys = {}, _storage_keys(conn, files.trees(dom))
    for path in replaced.made:
        if not used_keys.isdisjoint(identities.keys_of(path)):
            leftovers[path] = f"{path} stays: used by {dom.name()}"
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
