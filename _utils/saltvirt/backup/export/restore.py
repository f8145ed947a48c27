"""Create a guest from a backup, whose disks the target host exports to this host only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from saltvirt import errors, units
from saltvirt.backup.export import guest_state, inspect_guest, replaced_guest
from saltvirt.backup.export.replaced_guest import SavedState
from saltvirt.backup.model import archive, backup_schedule, record
from saltvirt.backup.model.answers import ShownBackup, ShownDisk
from saltvirt.backup.target import daemon
from saltvirt.design import identity
from saltvirt.design.domain import RECORD_VERSION
from saltvirt.host import connection
from saltvirt.host.domain import metadata
from saltvirt.host.provision import disk_build as disk_build_module
from saltvirt.host.provision import macs
from saltvirt.host.provision.guest_builder import (
    GuestBuilder,
    GuestRequest,
    Tools,
    assign_identity,
    interfaces_of_copy,
    reset_genid,
)
from saltvirt.spec.disk import DiskSpec
from saltvirt.system import atomic_file, private_folder
from saltvirt.system import tools as programs
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.metadata import GuestRecord, OwnDisk

if TYPE_CHECKING:
    import libvirt

FORMAT = "qcow2"


def disk_path(tools: Tools, guest: str, target: str, number: int = 1) -> str:
    """Return the path for a restored disk. number: to choose another name if the file exists."""
    suffix = f".{number}" if number > 1 else ""
    folder = tools.admission_config.images_dir
    return os.path.join(folder, f"{guest}_{target}{suffix}.{FORMAT}")


def sync(path: str) -> None:
    """Flush a new file and its name to disk before the guest is defined, so that a power failure
    cannot leave a guest with incomplete disks. Raises OperationFailed."""
    for location in (path, os.path.dirname(path)):
        try:
            atomic_file.sync(location)
        except OSError as exc:
            raise errors.OperationFailed(f"cannot write {location}: {exc.strerror}") from exc


class RestoreBuilder(GuestBuilder):
    """Builder for a guest from a backup.

    certificates: the folder with ca-cert.pem, client-cert.pem and client-key.pem. is_same_guest:
    restore the original guest, which does not exist any more; else create a second guest with an
    identity of its own, which with ``guest.seed`` the system in it gets too.
    """

    VERB = "virt.backup_restore"
    # called with each path before the file has content
    claim: Callable[[str], object] = staticmethod(lambda _path: None)

    def __init__(
        self,
        conn: libvirt.virConnect,
        guest: GuestRequest,
        tools: Tools,
        shown: ShownBackup,
        certificates: str,
        is_same_guest: bool,
    ) -> None:
        super().__init__(conn, guest, tools)
        self.shown, self.certificates, self.is_same_guest = shown, certificates, is_same_guest
        self.model = Domain.fromstring(shown.definition)
        self.saved_state: tuple[SavedState, ...] = ()
        self.state_problem = ""
        self.new_macs = [] if is_same_guest else macs.generate(conn, len(self.model.interfaces))
        for disk in shown.disks:  # the name becomes part of a file name
            if not record.is_target(disk.target):
                message = f"{shown.host} exports a disk {units.short_repr(disk.target)}"
                raise errors.BadAnswer(f"{message}, which is not a valid name")

    @property
    def macs(self) -> dict[str, str]:
        """{MAC in the backup, in lower case: new MAC} for a second guest; empty for the
        original."""
        return {} if self.is_same_guest else macs.pairs(self.model.interfaces, self.new_macs)

    def check(self) -> None:
        """Check that each disk has a path, and that the host has enough capacity."""
        self.tools.report_step(
            "check", f"checking the requirements of the backup {self.shown.backup_id}"
        )
        if self.guest.seed and not self.tools.seeder:
            raise errors.Unsupported("this host cannot seed: use seed=False")
        self.refuse_replaced()
        targets = {disk.target for disk in self.model.disks}
        for shown_disk in self.shown.disks:
            if shown_disk.target not in targets:
                raise errors.BadAnswer(
                    f"the definition in the backup has no disk {shown_disk.target}"
                )
            if self.is_selected(shown_disk.target):
                self.builds.append(self.disk_build(shown_disk, self.choose_path(shown_disk.target)))
        self._warn_differences()
        self.admit(self.definition())

    def refuse_replaced(self) -> None:
        """Raise Refused if an earlier in-place restore is neither confirmed nor undone. New files
        could get the same names, which identify the state of the guest."""
        replaced = replaced_guest.load(self.model.uuid or "") if self.is_same_guest else None
        if replaced:
            raise errors.Refused(
                f"the state of {replaced.name} before the restore of {replaced.backup} is still "
                f"saved: return to it with virt.backup_undo {replaced.name} and restore with "
                f"in_place=True, or delete it with virt.backup_confirm {replaced.name}"
            )

    def _warn_differences(self) -> None:
        shown = {shown_disk.target for shown_disk in self.shown.disks}
        for disk in self.model.disks:
            target = str(disk.target)
            if not self.is_selected(target):
                continue
            if target in shown and disk.shareable:
                self.tools.warn(
                    f"disk {target} was shared with other guests: the restored disk belongs to "
                    f"{self.guest.name} alone"
                )
            if target in shown and inspect_guest.is_encrypted(disk):
                self.tools.warn(
                    f"disk {target} was encrypted by libvirt, the restored disk is not: encrypt "
                    "it again, or move it to encrypted storage"
                )
            if self.shown.damaged and target not in shown and not disk.removable_medium:
                self.tools.warn(f"disk {target} is not restored: the backup does not export it")
        self.warn_devices()

    def warn_devices(self) -> None:
        """Warn about host devices, which keep their addresses."""
        nics = [
            f"interface {device.mac}"
            for device in self.model.interfaces
            if device.type == "hostdev"
        ]
        host_devices = [
            " ".join(map(str, device.source_key())) for device in self.model.host_devices
        ]
        if nics or host_devices:
            self.tools.warn(
                f"{self.guest.name} has host devices with the addresses of its previous host "
                f"({', '.join([*host_devices, *nics])}): check them before you start it"
            )

    def is_selected(self, target: str) -> bool:
        """Whether to restore this disk."""
        return bool(target)

    def disk_build(self, disk: ShownDisk, path: str) -> disk_build_module.DiskBuild:
        """Return how to build a disk from the backup."""
        spec = DiskSpec(name=disk.target, device="disk", size_bytes=disk.size_bytes)
        write = self._disk_writer(disk.target)
        return disk_build_module.DiskBuild(spec, make=True, format=FORMAT, path=path, write=write)

    def choose_path(self, target: str) -> str:
        """Return the path for a disk. Raises AlreadyExists."""
        path = disk_path(self.tools, self.guest.name, target)
        if self.is_path_taken(path):
            raise errors.AlreadyExists(f"disk {target}: {path} already exists")
        return path

    def fetch(self) -> None:
        """Do nothing: disks are read after the guest is defined."""

    def reserve(self) -> None:
        # pushed first, so undone last: undefine removes the present variables
        undo = "restore the firmware variables and the TPM state"
        self.undo.push(undo, lambda: guest_state.restore_saved(self.saved_state))
        super().reserve()

    def make_disks(self) -> None:
        super().make_disks()
        self.put_state(self.read_state())

    def put_state(self, files: dict[str, bytes]) -> None:
        """Install firmware variables and TPM state from the backup. Rename files of an earlier
        guest."""
        existing, files = guest_state.state_paths(self.conn, self.dom), self.usable_state(files)
        for kind in guest_state.missing_kinds(self.model, files):
            self.tools.warn(self.initial_state(kind, existing.get(kind)))
        self.saved_state = guest_state.save_locations(self.dom, files)
        guest_state.install(self.dom, files, self.saved_state)
        for saved in self.saved_state:
            if saved.was_there:
                self.tools.warn(
                    f"{saved.path} existed already and was renamed to {saved.saved_path}"
                )

    def usable_state(self, state: dict[str, bytes]) -> dict[str, bytes]:
        """Return the part of the state that can be used on this host."""
        reason = guest_state.misfit(self.dom, state)
        if reason is None:
            return state
        self.state_problem = reason
        return {
            name: data for name, data in state.items() if not name.startswith(archive.VARIABLES)
        }

    def initial_state(self, kind: str, existing: str | None) -> str:
        """Describe the initial firmware variables or TPM state if they do not come from the backup.
        existing: path of the files of an earlier guest."""
        origin = f"new {kind}"
        if existing and connection.is_local(self.conn):
            origin = f"the {kind} of an earlier guest in {existing}"
        return f"{self.guest.name} starts with {origin}: {self.no_state_reason}"

    @property
    def no_state_reason(self) -> str:
        """Why the state does not come from the backup."""
        if self.state_problem:
            return self.state_problem
        if connection.is_local(self.conn):
            return "the backup has none"
        return "libvirt is not on the same machine as the minion"

    def read_state(self) -> dict[str, bytes]:
        """Read firmware variables and TPM state from the backup, and check their digests. If those
        of a damaged backup cannot be read, continue without them."""
        if self.shown.state is None or not connection.is_local(self.conn):
            return {}
        try:
            return self._read_archive(self.shown.state)
        except errors.VirtError as exc:
            if not self.shown.damaged:
                raise
            self.state_problem = exc.text
            return {}

    def _read_archive(self, shown: ShownDisk) -> dict[str, bytes]:
        if not 0 < shown.size_bytes <= archive.MAX_ARCHIVE_BYTES:
            raise errors.BadAnswer(f"the state that {self.shown.host} exports is too large")
        self.tools.report_step("state", "reading firmware variables and TPM state")
        with private_folder.temporary(private_folder.runtime(), "state-") as folder:  # in memory
            path = os.path.join(folder, "state")
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            argv = self._argv(record.STATE, path, record.RAW, shown.size_bytes)
            programs.run(argv, f"read the state in {self.shown.backup_id}")
            with open(path, "rb") as file:
                data = file.read(archive.MAX_ARCHIVE_BYTES + 1)
        return archive.unpack(data, f"the state in {self.shown.backup_id}")

    def system_work(self) -> disk_build_module.DiskBuild | None:
        """Return the disk with the seeded system."""
        disk = identity.seeded_disk(self.model)
        return next(
            (build for build in self.builds if disk and build.spec.name == disk.target), None
        )

    def interfaces(self) -> list[dict[str, Any]]:
        return interfaces_of_copy(self.dom, self.model)

    def seed(self) -> str | None:
        if not self.is_same_guest and self.seeded_work() is None:
            self.tools.warn(
                f"the system in {self.guest.name} was not seeded: it has the machine-id, host "
                "name, SSH host keys and minion key of its original"
            )
        return super().seed()

    def finish(self, seeded: bool) -> None:
        super().finish(seeded or bool(self.model.record.seeded))

    def definition(self) -> Domain:
        """Return the definition of the backup with the restored disks and empty drives."""
        built = self.model.copy()
        built.name = self.guest.name
        built.record = self._record()
        for entry in self.model.record.entries:
            built.record.entries.append(entry.copy())
        created = {build.spec.name: build for build in self.builds}
        for disk in list(built.disks):
            build = created.get(disk.target or "")
            if build:
                self.attach_disk(built.record, disk, build.file)
            elif disk.removable_medium:
                disk.source = None
            else:
                built.disks.remove(disk)
        built.os.forget_variables()
        reset_genid(built)
        if not self.is_same_guest:
            self._change_identity(built)
        identity.carry(self.model, built, self.macs)
        return built

    def _record(self) -> GuestRecord:
        """Return a metadata record for the restored guest."""
        new_record, old = GuestRecord(version=RECORD_VERSION), self.model.record
        new_record.os = old.os
        new_record.created, new_record.seeded = old.created, old.seeded
        new_record.image, new_record.image_hash = old.image, old.image_hash
        return new_record

    def attach_disk(self, record: GuestRecord, disk: Disk, path: str) -> None:
        """Attach the file as a disk that belongs to the guest."""
        disk.source = disk.backing_store = None
        node = disk.need()
        for encryption in node.findall("encryption"):  # the backup contains the disk decrypted
            node.remove(encryption)
        disk.shareable = False  # libvirt supports this for raw disks only
        disk.type, disk.driver_type = "file", FORMAT
        disk.source.file = path
        record.disks.append(OwnDisk(target=disk.target, path=path))

    def _change_identity(self, built: Domain) -> None:
        assign_identity(built, self.new_macs)
        metadata.unmark(built.record)
        # the backup setting applies to the original only
        built.record.entries = [
            entry for entry in built.record.entries if entry.key != backup_schedule.KEY
        ]

    def _disk_writer(self, target: str) -> Callable[[str], object]:
        def write(path: str) -> None:
            self.tools.report_step("copy", f"reading disk {target} of the backup", within_s=3600)
            # create it before qemu-img does, accessible for root only
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self.claim(path)
            programs.run(self._argv(target, path), f"read {target} of {self.shown.backup_id}",
                         timeout_s=None)  # fmt: skip
            sync(path)

        return write

    def _argv(
        self, target: str, path: str, format: str = FORMAT, max_bytes: int | None = None
    ) -> list[str]:
        """Return the command that reads a disk. max_bytes: limit for its size."""
        credentials = daemon.credentials(self.certificates)
        source = daemon.nbd(self.shown.host, self.shown.port, target)
        if max_bytes:
            source = {"driver": record.RAW, "size": max_bytes, "file": source}
        # fill unreadable parts of a damaged backup with zeros
        options = ["--salvage"] if self.shown.damaged else []
        return ["qemu-img", "convert", *options, "--object", json.dumps(credentials), "-O", format,
                f"json:{json.dumps(source)}", path]  # fmt: skip
