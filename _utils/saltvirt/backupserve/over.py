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
from saltvirt.backups.answers import (
    GuestOver,
    RestoredDisk,
    ShownBackup,
    ShownDisk,
    Undone,
)
from saltvirt.backupserve import standing
from saltvirt.backupserve import state as guest_state
from saltvirt.backupserve.restore import Restore, named
from saltvirt.design import identity
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import aside, creation, lifecycle, lookup, metadata, purge
from saltvirt.host.domain.aside import Aside
from saltvirt.host.domain.purge import PurgePlan
from saltvirt.host.migration import departed, move_journal
from saltvirt.host.provision import admission, disk_notes, disks
from saltvirt.host.provision.guest_builder import set_back
from saltvirt.host.storage import deletion, files, usage
from saltvirt.host.storage import identity as identities
from saltvirt.xml.domain import Domain

if TYPE_CHECKING:
    from saltvirt.answers.made import Made
    from saltvirt.host.provision.admission import AdmissionConfig
    from saltvirt.host.provision.guest_builder import GuestRequest, Tools
    from saltvirt.placement.facts import PlacementRequest
    from saltvirt.xml.metadata import GuestRecord

CONFIRM, UNDO = "virt.backup_confirm", "virt.backup_undo"


class Over(Restore):
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
        only: str | None = None,
    ) -> None:
        super().__init__(conn, guest, tools, shown, certificates, True)
        self.may_stop, self.only = stop, only

    def run(self) -> Made:
        name = self.guest.name
        with self.tools.admission_config.guest(self.VERB, name), translated(f"restore {name}"):
            self.dom = lookup.lookup(self.conn, name)
            creation.require_complete(self.dom, "restore a backup over")
            for why in _against(self.conn, self.dom, self.may_stop):
                raise errors.Refused(why)
            self.before = _definition(self.dom)
            self.there = Domain.fromstring(self.before)
            if self.there.uuid != self.model.uuid:
                raise errors.Refused(
                    f"{name} is another guest than that of the backup, which had the UUID "
                    f"{self.model.uuid}: new=NAME restores beside it"
                )
            disk_notes.remove(self.conn, name)
            self.check()
            return self.all_or_nothing()

    def refuse_kept(self) -> None:
        """That is asked of the guest that is there."""

    def say_devices(self) -> None:
        """It has them already."""

    def wants(self, target: str) -> bool:
        return self.only in (None, target)

    def place(self, target: str) -> str:
        return _free(self.tools, self.guest.name, target)

    def check(self) -> None:
        if self.only:
            _has(self.shown, self.only)
            if self.only not in {disk.target for disk in self.there.disks}:
                raise errors.NotFound(f"{self.guest.name} has no disk {self.only} here")
        super().check()

    def admit(self, built: Domain) -> PlacementRequest:
        request = admission.request_of(built, self.works)
        admission.check(self.conn, self.tools.admission_config, request, new=False)
        return request

    def make(self) -> Made:
        note = disk_notes.Note(self.guest.name, self.VERB, self.works)
        self.undo.push("forget the new disks", lambda: note.end(self.undo.failed))
        self.claim = note.mark
        for work in self.works:
            self.tools.say("disk", f"making disk {work.spec.name}", path=work.path)
            disks.make(self.conn, work, self.undo, note=note)
        state = {} if self.only else self.read_state()
        with self.tools.admission_config.lock():
            self._off()
            self._switch(state)
        note.end()
        return self.result(None)

    def put_state(self, state: dict[str, bytes]) -> None:
        """What it has of its own makes way, and is put down with how it was."""
        name, has = self.guest.name, guest_state.where(self.conn, self.dom)
        state = self.fitting(state)
        for what in [] if self.only else guest_state.lacking(self.model, state):
            had = self.had.get(what)
            if had and had == has.get(what):
                self.tools.warn(f"{name} keeps its {what}: {self.no_state}")
                continue
            stays = f"; what it had stays in {had} for {UNDO}" if had else ""
            self.tools.warn(f"{self.begins(what, has.get(what))}{stays}")
        kept = guest_state.places(self.dom, state)
        if kept:
            self.undo.push("put back the firmware variables", guest_state.put_back, kept)
            aside.keep(replace(self.aside, state=kept))
            guest_state.put(self.dom, state, kept)
        if self.aside.unfinished:
            aside.keep(replace(self.aside, state=kept, unfinished=False))

    def _off(self) -> None:
        if not self.dom.isActive():
            return
        for why in _against(self.conn, self.dom, self.may_stop):
            raise errors.Refused(why)
        self._say_what_goes()
        self.tools.say("stop", f"powering {self.guest.name} off")
        self.undo.push(f"start {self.guest.name} again", lifecycle.start, self.dom)
        lifecycle.stop(self.dom)

    def _say_what_goes(self) -> None:
        """Names disks that the running guest alone has: they end with it."""
        has = {disk.target for disk in self.there.disks}
        for disk in Domain.fromstring(self.dom.XMLDesc(0)).disks:
            if disk.target not in has and not disk.removable_medium:
                self.tools.warn(
                    f"disk {disk.target}, {disk.source.place()}, which {self.guest.name} had only "
                    "until it was powered off, stays, and is attached to it no more"
                )

    def _switch(self, state: dict[str, bytes]) -> None:
        name, uuid = self.guest.name, self.dom.UUIDString()
        tree = ElementTree.fromstring(self.before)
        old = [path for path, _format, why in purge.own_disks(self.conn, tree) if why is None]
        # nobody starts it meanwhile
        with usage.closed(self.conn, old) as held:
            for path, why in held.items():
                if why:
                    raise errors.OperationFailed(f"{name} stays as it is: {path}: {why}")
            if _definition(self.dom) != self.before:
                raise errors.OperationFailed(f"{name} was changed meanwhile: begin again")
            built, made = self.definition(), tuple(work.file for work in self.works)
            self.had = guest_state.where(self.conn, self.dom)
            self.undo.push("forget how it was", aside.forget, uuid)
            stay = {files.real(path) for path in old} & _disks(self.conn, built.need())
            self.aside = Aside(
                uuid, name, self.shown.ident, self.before, made, stay=tuple(stay),
                unfinished=bool(state),
            )  # fmt: skip
            aside.keep(self.aside)
            self.undo.push("define it as it was", self.conn.defineXML, self.before)
            self.dom = lookup.define(self.conn, built.tostring())
            self.put_state(state)
        if not {*made} <= files.paths(_tree(self.dom)):
            raise errors.OperationFailed(f"libvirt did not take the new disks of {name}")

    def definition(self) -> Domain:
        """That of the backup, or with ``only`` that which is there. What is in no backup, such as a
        disk of a server, is as it is now."""
        if self.only:
            return self._with_one()
        built, saved = super().definition(), {disk.target for disk in self.model.disks}
        has = {disk.target for disk in built.disks}
        stay = saved - has
        for disk in self.there.disks:
            if disk.target in stay:
                built.disks.append(disk.copy())
        self._keep_record(built.record, stay)
        identity.fill(self.model, built)  # once more: of those disks, too
        identity.fill(self.there, built)
        return built

    def _keep_record(self, record: GuestRecord, stay: Collection[str | None]) -> None:
        """The entries are those of today, not of the day of the backup, and disks of the guest's
        own that are not put aside stay its own. stay: the targets of those that it keeps."""
        now = self.there.record
        if not now:
            return
        record.entries = [one.copy() for one in now.entries]
        away = self.there.copy()
        for disk in [one for one in away.disks if one.target in stay]:
            away.disks.remove(disk)
        gone = _reached(self.conn, away.need())
        for own in now.disks:
            path = own.path
            if own.pool:
                path = files.volume_path(self.conn, own.pool, own.volume)
            if path and files.real(path) not in gone:
                record.disks.append(own.copy())

    def _with_one(self) -> Domain:
        built, work = self.there.copy(), self.works[0]
        record = built.record
        for own in [one for one in record.disks if one.target == self.only]:
            record.disks.remove(own)
        for disk in built.disks:
            if disk.target == self.only:
                self.point(record, disk, work.file)
        identity.carry(self.there, built)
        set_back(built)
        if not self.there.record:  # it is none of ours: all that it writes to is its own
            built.record = None
        return built


def look(conn: libvirt.virConnect, name: str, stop: bool) -> GuestOver:
    """What a restore over a guest would find. Raises NotFound."""
    dom = lookup.lookup(conn, name)
    with translated(f"look at {name}"):
        kept = aside.of(dom.UUIDString())
        waits = kept.backup if kept and _is_new(conn, dom, kept) else None
        return GuestOver(
            dom.UUIDString(), bool(dom.isActive()), tuple(_against(conn, dom, stop)), waits
        )


def one_disk(
    conn: libvirt.virConnect, tools: Tools, name: str, restore: Restore, target: str
) -> RestoredDisk:
    """A disk of a backup as a file, beside the guest's own."""
    config = tools.admission_config
    with config.guest(Restore.VERB, name):
        disk_notes.remove(conn, name)
        shown = _has(restore.shown, target)
        work = restore.work(shown, _free(tools, name, target))
        request = admission.request_of(restore.model, [work])
        admission.check(conn, config, request, new=False, only=("disk",))
        note = disk_notes.Note(name, Restore.VERB, [work])
        with restore.undo as undo:
            undo.push("forget the file", lambda: note.end(undo.failed))
            restore.claim = note.mark
            disks.make(conn, work, undo, note=note)
            undo.success()
        note.end()
        return RestoredDisk(work.file, shown.size_bytes)


def _has(shown: ShownBackup, target: str) -> ShownDisk:
    found = next((one for one in shown.disks if one.target == target), None)
    if found is None:
        raise errors.NotFound(f"the backup {shown.ident} has no disk {target}")
    return found


def undo(
    conn: libvirt.virConnect, config: AdmissionConfig, name: str, stop: bool, test: bool = False
) -> Undone:
    """The guest is as it was before the backup took its place; what was made for that goes. test:
    only raises why not. Raises NotFound, Refused, OperationFailed."""
    with config.guest(UNDO, name), translated(f"bring {name} back"):
        kept, dom = _kept(conn, name)
        for why in _against_undo(conn, kept, dom, stop):
            raise errors.Refused(why)
        if test:
            return Undone()
        with config.lock():
            away = _attached_since(conn, kept, dom)
            if dom is not None and dom.isActive() and _is_to_change(conn, dom, kept):
                lifecycle.stop(dom)
            if dom is None or _is_new(conn, dom, kept):
                dom = lookup.define(conn, kept.definition)
            if _is_new(conn, dom, kept):
                raise errors.OperationFailed(f"libvirt did not take {name} as it was")
            guest_state.put_back(kept.state)
            if kept.state:  # once: what is there from now on is the guest's
                kept = replace(kept, state=())
                aside.keep(kept)
        left = _removed(conn, dom, kept)
        if left:  # who asks again must not meet another file of that name
            aside.keep(replace(kept, made=tuple(left)))
        else:
            disk_notes.remove(conn, name)
            aside.forget(kept.uuid)
        return Undone(tuple(left.values()), away)


def _attached_since(
    conn: libvirt.virConnect, kept: Aside, dom: libvirt.virDomain | None
) -> tuple[str, ...]:
    """Real paths of disks that the guest has only since the backup took its place."""
    if dom is None or not _is_new(conn, dom, kept):
        return ()
    made = {files.real(path) for path in kept.made}
    now = {
        files.real(path): {*files.chain_paths(path, format)}
        for tree in files.trees(dom)
        for path, format, why in purge.own_disks(conn, tree)
        if why is None
    }
    known = made | _reached(conn, kept.tree)
    return tuple(sorted(one for one, chain in now.items() if not {one, *chain} & known))


def plan(conn: libvirt.virConnect, name: str, unused: Collection[str] = ()) -> PurgePlan:
    """What goes when it is confirmed: the disks that the backup took out of the guest, if they are
    its own and nobody uses them. Changes nothing."""
    kept, dom = _kept(conn, name)
    for why in _against_confirm(conn, kept, dom, name):
        raise errors.Refused(why)
    now = files.trees(dom) if dom is not None else []
    for tree in (kept.tree, *now):
        for source in tree.iterfind("devices/disk/source[@pool]"):
            files.require_pool(conn, source.get("pool", ""))
    has = _keys(conn, now)
    found = {
        path: why for path, why in _own(conn, kept).items()
        if path not in kept.stay and has.isdisjoint(identities.of(path))
    }  # fmt: skip
    used = usage.read(conn, kept.uuid, beside=found)
    delete, keep, shared = usage.decide(conn, found, used, map(files.real, unused))
    own = {path for path, why in found.items() if why is None}
    return PurgePlan(delete, keep, shared, sorted(own - {*delete}))


def confirm(
    conn: libvirt.virConnect, config: AdmissionConfig, name: str, unused: Collection[str] = ()
) -> PurgePlan:
    """Deletes them, and how the guest was is kept no more. After a failure it can be called again.
    Raises NotFound, Refused, OperationFailed."""
    with config.guest(CONFIRM, name), translated(f"confirm the restore of {name}"):
        with deletion.planned(conn, lambda: plan(conn, name, unused)) as (todo, paths):
            for path in paths:
                purge.delete_storage(conn, path)
        todo.delete = paths
        kept = _kept(conn, name)[0]
        guest_state.forget(kept.state)
        aside.forget(kept.uuid)
        return todo


def _own(conn: libvirt.virConnect, kept: Aside) -> dict[str, str | None]:
    """Real path of each disk that was attached to it to why it stays, None where it is its own. A
    disk that it had made, and that was detached by then, is not for us to delete."""
    tree = kept.tree
    made = {files.real(path) for path in metadata.disk_paths(conn, [tree])}
    ours = bool(metadata.of_tree(tree))
    found: dict[str, str | None] = {}
    for path, format, why in purge.own_disks(conn, tree):
        chain = files.chain_paths(path, format) if path.startswith("/") else [path]
        its = [one for one in chain if one in made]
        above = itertools.takewhile(lambda one: one not in made, chain) if its else ()
        found |= dict.fromkeys([*above, *its])
        if not its:
            found[files.real(path)] = why or (purge.NOT_MADE if ours else None)
    return found


def _kept(conn: libvirt.virConnect, name: str) -> tuple[Aside, libvirt.virDomain | None]:
    """What is kept of a guest, and the guest, None where it is gone, also if another one has its
    name. Raises NotFound, Refused."""
    dom = lookup.find(conn, name)
    found = [one for one in [aside.of(dom.UUIDString()) if dom is not None else None] if one]
    if not found:  # of a guest that is gone, whose name another one may have by now
        here = {*lookup.uuids(conn).values()}
        found = [one for one in aside.every() if one.name == name and one.uuid not in here]
        dom = None
    if not found:
        raise errors.NotFound(
            f"no backup has taken the place of {name} on {conn.getHostname()}, or it was confirmed"
        )
    if len(found) > 1:
        raise errors.Refused(f"two guests called {name} are kept: see {aside.FOLDER}")
    return found[0], dom


def _is_new(conn: libvirt.virConnect, dom: libvirt.virDomain, kept: Aside) -> bool:
    """Whether the guest has the disks that were made, or stands on them."""
    return not {files.real(path) for path in kept.made}.isdisjoint(_reached(conn, _tree(dom)))


def _is_to_change(conn: libvirt.virConnect, dom: libvirt.virDomain, kept: Aside) -> bool:
    """Whether an undo has more to do than to delete what was made."""
    return bool(kept.state) or _is_new(conn, dom, kept)


def _reached(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    """Real paths of all that a definition names as storage, with what that stands on."""
    found = {files.real(path) for path in files.paths(tree) | files.volume_paths(conn, tree)}
    for path, format in files.named(conn, tree):
        found |= {*files.chain_paths(path, format)}
    return found


def _keys(conn: libvirt.virConnect, trees: Collection[ElementTree.Element]) -> set[object]:
    """The keys of all that definitions name as storage, with what that stands on."""
    return {key for tree in trees for path in _reached(conn, tree) for key in identities.of(path)}


def _changed(conn: libvirt.virConnect, kept: Aside, dom: libvirt.virDomain | None) -> list[str]:
    """Why nobody knows which of the two the guest is: it has the disks of neither."""
    if dom is None or _is_new(conn, dom, kept):
        return []
    if _disks(conn, kept.tree) <= _disks(conn, _tree(dom)):
        return []
    return [
        f"{dom.name()} has other disks by now than before {kept.backup} took its place, and than "
        f"that made: look which it is to have; {aside.FOLDER}/{kept.uuid}.json has how it was, and "
        "is yours to remove"
    ]


def _disks(conn: libvirt.virConnect, tree: ElementTree.Element) -> set[str]:
    return {files.real(path) for path, _, why in purge.own_disks(conn, tree) if why is None}


def _against(conn: libvirt.virConnect, dom: libvirt.virDomain, stop: bool) -> list[str]:
    """Why no backup can take its place now."""
    name, found = dom.name(), _unfit(dom)
    kept = aside.of(dom.UUIDString())
    if kept:
        found += _changed(conn, kept, dom)
    if kept and _is_new(conn, dom, kept):
        found.append(
            f"{kept.backup} has taken the place of {name} already, and how it was is still kept: "
            f"{CONFIRM} {name} deletes that, {UNDO} {name} brings it back"
        )
    if dom.isActive() and not stop:
        found.append(f"{name} is {lookup.state(dom)}: stop it first; stop=True powers it off")
    return found


def _unfit(dom: libvirt.virDomain) -> list[str]:
    name, found = dom.name(), []
    try:
        move_journal.may_start(dom)
    except errors.OperationFailed as exc:
        found.append(exc.text)
    if not dom.isPersistent():
        found.append(f"{name} is transient: it has no definition that could be put aside")
    if dom.hasManagedSaveImage():
        found.append(f"{name} has saved memory, which belongs to its disks: start it first")
    if dom.snapshotNum():
        found.append(
            f"{name} has snapshots, which belong to its disks: delete them first, or restore "
            "beside it (new=NAME)"
        )
    return found


def _against_confirm(
    conn: libvirt.virConnect, kept: Aside, dom: libvirt.virDomain | None, name: str
) -> list[str]:
    found = _changed(conn, kept, dom)
    if found or dom is None:
        return found
    if not _is_new(conn, dom, kept):
        return [
            f"{name} is as it was: the restore of {kept.backup} did not come to its end; {UNDO} "
            "takes away what it made"
        ]
    if kept.unfinished:
        return [
            f"the restore of {kept.backup} ended before the firmware variables and the TPM state "
            f"of {name} were in place: {UNDO} {name} brings back what it had, then restore it again"
        ]
    if standing.standing(name, _tree(dom)):
        return [
            f"{name} still stands on the backup {kept.backup}, so what it had stays: salt-run "
            f"virt.backup_instant {name} brings its blocks in, {UNDO} {name} brings it back"
        ]
    return []


def _against_undo(
    conn: libvirt.virConnect, kept: Aside, dom: libvirt.virDomain | None, stop: bool
) -> list[str]:
    found = [
        f"{path} is gone: {kept.name} as it was cannot be brought back"
        for path, why in _own(conn, kept).items()
        if why is None and not usage.is_there(conn, path)
    ]
    if dom is None:
        if lookup.find(conn, kept.name) is not None:
            found.append(
                f"{kept.name} is another guest by now: rename or purge that first, or {CONFIRM} "
                f"{kept.name} deletes what is kept of the former"
            )
        if departed.why(kept.name):
            found.append(
                f"{kept.name} was moved to another host: as it was it would be there twice; bring "
                f"it back first, or {CONFIRM} {kept.name} deletes what is kept here"
            )
        return found
    found += _changed(conn, kept, dom)
    if not _is_to_change(conn, dom, kept):
        return found
    if dom.name() != kept.name:
        found.append(f"{dom.name()} was called {kept.name} then: rename it back first")
    if dom.isActive() and not stop:
        found.append(f"{dom.name()} is {lookup.state(dom)}: stop it first; stop=True powers it off")
    return found + _unfit(dom)


def _removed(conn: libvirt.virConnect, dom: libvirt.virDomain, kept: Aside) -> dict[str, str]:
    """Deletes the files that were made for the guest, which has them no more; each that is still
    there to why. Of the guest's own definitions those count by which it runs and starts next: a
    checkpoint, of a backup that was made meanwhile, names the files, too."""
    left, has = {}, _keys(conn, files.trees(dom))
    for path in kept.made:
        if not has.isdisjoint(identities.of(path)):
            left[path] = f"{path} stays: used by {dom.name()}"
            continue
        try:
            with deletion.unused(conn, path, but=kept.uuid):
                purge.delete_file(path)
        except errors.OperationFailed as exc:
            left[path] = exc.text
    return left


def _free(tools: Tools, name: str, target: str) -> str:
    paths = (named(tools, name, target, number) for number in itertools.count(1))
    return next(path for path in paths if not os.path.lexists(path))


def _definition(dom: libvirt.virDomain) -> str:
    secure = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE
    found: str = dom.XMLDesc(secure)
    return found


def _tree(dom: libvirt.virDomain) -> ElementTree.Element:
    return ElementTree.fromstring(_definition(dom))
