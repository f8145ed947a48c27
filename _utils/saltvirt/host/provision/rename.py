"""Renaming of a stopped guest and of its files.

Each file gets its new name as a second link, and the old name is removed last. If the process dies,
the definition always names existing files, and a journal lists the others.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from saltvirt import errors, names
from saltvirt.answers.created import RenamedGuest
from saltvirt.design import identity
from saltvirt.host import hooks
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import checkpoints, creation, lookup, metadata
from saltvirt.host.migration import departures, move_journal
from saltvirt.host.provision import (
    admission,
    disk_build,
    disk_journal,
    guest_builder,
    seed_drive,
    undo_disks,
)
from saltvirt.host.storage import files, usage
from saltvirt.revert import UndoStack
from saltvirt.spec.disk import DiskSpec
from saltvirt.system import bounded_io
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Collection

    from saltvirt.host.provision.guest_builder import GuestRequest, Tools
    from saltvirt.xml.domain.metadata import OwnDisk


@dataclass(frozen=True)
class FileMove:
    """The old and new path of a guest's file.

    pool: the storage pool that contains it.
    """

    old: str
    new: str
    pool: str | None = None


class GuestRename:
    """Renames one guest.

    guest: the GuestRequest with the new name.
    """

    def __init__(
        self, conn: libvirt.virConnect, dom: libvirt.virDomain, guest: GuestRequest, tools: Tools
    ) -> None:
        self.conn, self.dom, self.guest, self.tools = conn, dom, guest, tools
        self.old = dom.name()
        self.unmoved: dict[str, str] = {}
        self.variables: FileMove | None = None
        self._read()

    def check(self) -> list[FileMove]:
        """Return the FileMoves; change nothing. Raises Refused, AlreadyExists, InvalidInput."""
        names.guest(self.guest.name)
        self._check_state()
        admission.refuse_name_taken(self.conn, self.guest.name, self.old)
        if self.guest.seed and not self.tools.seeder:
            raise errors.Unsupported("this host cannot seed: pass seed=False")
        moves = [move for move in map(self._move, self.model.record.disks) if move]
        self.variables = self._move_variables()
        for move in (*moves, *([self.variables] if self.variables else [])):
            if os.path.lexists(move.new):
                raise errors.AlreadyExists(f"{move.new} already exists")
        return moves

    def _check_state(self) -> None:
        creation.require_complete(self.dom, "rename")
        state = lookup.state(self.dom)
        if state != "shutdown" or not self.dom.isPersistent():
            raise errors.Refused(f"{self.old} is {state}: stop it first, then rename it")
        # under another name it could be started here while it runs on the target, and the
        # leftovers on the target would not be found
        if move_journal.load_for_domain(self.dom):
            raise errors.Refused(
                f"a migration of {self.old} from this host was interrupted: salt-run "
                f"virt.migrate_recover {self.old} completes it; then rename it"
            )
        if self.dom.hasManagedSaveImage() or self.dom.snapshotNum():
            raise errors.Refused(
                f"{self.old} has saved memory or snapshots, which would be lost: remove them first"
            )
        for feature in hooks.installed():
            feature.check_rename(self.old, self.dom.UUIDString())

    def _move(self, own_disk: OwnDisk) -> FileMove | None:
        """Return the FileMove of a recorded disk; None if it keeps its name."""
        path = metadata.disk_path(self.conn, own_disk)
        if path and seed_drive.is_seed_path(path, self.old) and files.is_regular(path):
            return FileMove(path, os.path.join(os.path.dirname(path), f"{self.guest.name}.iso"))
        if not path or not os.path.basename(path).startswith(f"{self.old}_"):
            return None
        if files.is_regular(path):
            return self._to_new_name(path, own_disk.pool)
        if own_disk.pool:
            self.unmoved[path] = f"libvirt cannot rename the volumes of pool {own_disk.pool}"
        return None

    def _move_variables(self) -> FileMove | None:
        """Return the FileMove of the firmware variables file, or None if it keeps its name.

        libvirt named the file after the guest and would use it for the next guest with that name.
        """
        path = files.variables_of(ElementTree.fromstring(self.before)) or ""
        is_own = files.are_own_variables(path, self.old)
        return self._to_new_name(path) if is_own else None

    def _to_new_name(self, path: str, pool: str | None = None) -> FileMove | None:
        """Return the FileMove of a file named after the guest; None if others may use its name."""
        folder, name = os.path.split(path)
        used = usage.read(self.conn, self.dom.UUIDString(), sibling_paths=[path])
        sharing_reason = usage.others_may_have(self.conn, path)
        reason = f"other hosts may use it ({sharing_reason})" if sharing_reason else None
        reason = reason or used.keep_reason(usage.keys_of(self.conn, path))
        if reason:  # other users know the file under this name
            self.unmoved[path] = reason
            return None
        return FileMove(path, os.path.join(folder, self.guest.name + name[len(self.old) :]), pool)

    def run(self) -> RenamedGuest:
        """Rename the guest, or undo all changes; the answer of ``virt.rename``."""
        names.guest(self.guest.name)
        with self.tools.admission_config.guest("virt.rename", self.old, self.guest.name):
            for name in (self.guest.name, self.old):
                disk_journal.remove(self.conn, name)
            self._read()
            return self._run()

    def _read(self) -> None:
        secure = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_INACTIVE
        self.before = self.dom.XMLDesc(secure)
        self.model = Domain.fromstring(self.before)

    def _run(self) -> RenamedGuest:
        disk_moves = self.check()
        moves = [*disk_moves, *([self.variables] if self.variables else [])]
        paths = [path for move in moves for path in (move.old, move.new)]
        builds = [disk_build.DiskBuild(DiskSpec(), path=path) for path in paths]
        with UndoStack() as undo:
            # under both names, so that the next guest of either name finds leftovers
            names_to_record = (self.guest.name, self.old)
            notes = [disk_journal.DiskJournal(n, "virt.rename", builds) for n in names_to_record]
            undo.push("remove the names", self._end, notes, undo.failed)
            for move in moves:
                if move is self.variables and not os.path.lexists(move.old):
                    continue  # the guest was never started
                _link(move)
                undo.push(f"remove {move.new}", undo_disks.remove_file, move.new)
            self._refresh(moves)
            self._define(moves, undo)
            pub_key = self._seed()
            undo.success()
        for move in moves:
            undo_disks.remove_file(move.old)
        self._end(notes)
        departures.forget(self.old)  # the record of a departed guest with the old name is obsolete
        self._refresh(moves)
        # the rename is complete: errors of this check are ignored
        with contextlib.suppress(OSError, libvirt.libvirtError, errors.VirtError):
            self._warn_strays(moves)
        return RenamedGuest(
            name=self.guest.name,
            host=self.conn.getHostname(),
            uuid=self.dom.UUIDString(),
            state=lookup.state(self.dom),
            disks=tuple(move.new for move in disk_moves),
            unrenamed=self.unmoved,
            pub_key=pub_key,
            warnings=tuple(self.tools.warnings),
        )

    def _warn_strays(self, moves: list[FileMove]) -> None:
        """Warn about unused files with the guest's old name beside its disks.

        They may be former disks of the guest, which its new name no longer shows.
        """
        new_name = self.guest.name
        disk_moves = [move for move in moves if move is not self.variables]
        strays = set[str]()
        for folder in {
            os.path.dirname(m.new)
            for m in disk_moves
            if not seed_drive.is_seed_path(m.new, new_name)
        }:
            names_in_folder = bounded_io.names(folder)
            strays |= {
                os.path.join(folder, n) for n in names_in_folder if n.startswith(f"{self.old}_")
            }
        for dom in self.conn.listAllDomains() if strays else ():
            for tree in files.trees(dom):
                strays -= files.paths(tree)
        for path in sorted(strays):
            if usage.others_may_have(self.conn, path):
                continue  # on a server the file may belong to another host
            self.tools.warn(
                f"{path} is named after {self.old}, is not a disk of {new_name}, and is not "
                f"renamed: to attach it to {new_name}, list it with source_file"
            )

    @staticmethod
    def _end(notes: list[disk_journal.DiskJournal], failed: Collection[str] = ()) -> None:
        for note in notes:
            note.end(failed)

    def _define(self, moves: list[FileMove], undo: UndoStack) -> None:
        with self.tools.admission_config.lock():
            admission.refuse_name_taken(self.conn, self.guest.name, self.old)
            # the name is changed last, so that a failed rename can be repeated
            metadata.unmark(self.model.record)
            if self.model.record:  # names may be derived from the old file names
                identity.upgrade(self.model)
            _redirect_files(self.model, moves)
            undo.push("restore its definition", self.conn.defineXML, self.before)
            self.dom = lookup.define(self.conn, self.model.tostring())
            # libvirt stores checkpoints in a folder named after the guest, which a rename leaves
            # behind
            checkpoint_xmls = checkpoints.texts(self.dom)
            undo.push("restore its checkpoints in libvirt", self._redefine, checkpoint_xmls)
            checkpoints.forget(self.dom)
            self.dom.rename(self.guest.name, 0)
            undo.push(f"rename it back to {self.old}", self.dom.rename, self.old, 0)
            self.dom = lookup.lookup(self.conn, self.guest.name)
            checkpoints.redefine(self.dom, checkpoint_xmls)
            undo.push("remove its checkpoints of this name", checkpoints.forget, self.dom)

    def _redefine(self, checkpoint_xmls: tuple[str, ...]) -> None:
        """Restore the checkpoints of the guest, which has its old name again."""
        checkpoints.redefine(lookup.lookup(self.conn, self.old), checkpoint_xmls)

    def _seed(self) -> str | None:
        """Seed the new name into the guest's minion; the new public key, or None."""
        disk = identity.seeded_disk(self.model) if self.guest.seed else None
        if disk is None:
            return None
        path = disk.source.file or files.volume_path(
            self.conn, disk.source.pool, disk.source.volume
        )
        self.tools.report_step(
            "seed", "setting the ID of its minion", within_s=guest_builder.SEEDING_S
        )
        if self.tools.begin:
            self.tools.begin()
        sources = [disk.source.file or "" for disk in self.model.disks if disk.source]
        for volume in (
            source for source in sources if seed_drive.is_seed_path(source, self.guest.name)
        ):
            if self.tools.reissue and os.path.lexists(volume):
                # cloud-init may not have read it yet
                self.tools.reissue(self.guest.name, volume, volume, [])
        return self.tools.seed(self.guest.name, path or "", disk.driver_type or "raw", [])

    def _refresh(self, moves: list[FileMove]) -> None:
        for pool in {move.pool for move in moves if move.pool}:
            with contextlib.suppress(libvirt.libvirtError):
                self.conn.storagePoolLookupByName(pool).refresh(0)


def _link(move: FileMove) -> None:
    try:
        os.link(move.old, move.new)
    except OSError as exc:
        raise errors.OperationFailed(
            f"cannot rename {move.old} to {move.new}: {exc.strerror}"
        ) from exc


def _redirect_files(model: Domain, moves: list[FileMove]) -> None:
    """Replace the file names in the definition and in its record."""
    new_paths = {move.old: move.new for move in moves}
    if model.os.variables in new_paths:
        model.os.set_variables(new_paths[model.os.variables])
    name = os.path.basename
    in_pools = {(move.pool, name(move.old)): name(move.new) for move in moves if move.pool}
    for disk in (disk for disk in model.disks if disk.source):
        if disk.source.file in new_paths:
            disk.source.file = new_paths[disk.source.file]
            disk.backing_store = None  # libvirt detects the backing chain
    own_disks = [*model.record.disks, *model.record.devices.disks]
    for own_disk in own_disks:
        own_disk.path = new_paths.get(own_disk.path or "", own_disk.path)
    for element in [d.source for d in model.disks if d.source] + own_disks:
        if element.pool:
            element.volume = in_pools.get((element.pool, element.volume or ""), element.volume)


def rename(conn: libvirt.virConnect, name: str, guest: GuestRequest, tools: Tools) -> RenamedGuest:
    """Rename a stopped domain; the answer of ``virt.rename``."""
    with translated(f"rename {name} to {guest.name}"):
        return GuestRename(conn, lookup.lookup(conn, name), guest, tools).run()


def preview(
    conn: libvirt.virConnect, name: str, guest: GuestRequest, tools: Tools
) -> dict[str, dict[str, str]]:
    """Return the plan of ``virt.rename``: the new names, and why other files keep theirs.

    Changes nothing. Raises the errors that :func:`rename` would raise before its first change.
    """
    with translated(f"rename {name} to {guest.name}"):
        guest_rename = GuestRename(conn, lookup.lookup(conn, name), guest, tools)
        plan = {"disks": {move.old: move.new for move in guest_rename.check()}}
        return {**plan, "unrenamed": guest_rename.unmoved} if guest_rename.unmoved else plan
