"""A guest made from a backup: its disks are read from the machine of the target, which shows them
to this host alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from saltvirt import errors, units
from saltvirt.backup.export import guest_state, inspect_guest
from saltvirt.backup.model import archive, backup_schedule, record
from saltvirt.backup.model.answers import ShownBackup, ShownDisk
from saltvirt.backup.target import daemon
from saltvirt.design import identity
from saltvirt.design.domain import RECORD_VERSION
from saltvirt.host import connection
from saltvirt.host.domain import metadata, replaced_guest
from saltvirt.host.domain.replaced_guest import SavedState
from saltvirt.host.provision import disks, macs
from saltvirt.host.provision.guest_builder import (
    GuestBuilder,
    GuestRequest,
    Tools,
    assign_identity,
    interfaces_of_copy,
    reset_genid,
)
from saltvirt.images import locks
from saltvirt.images import tools as programs
from saltvirt.spec.disk import DiskSpec
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.metadata import GuestRecord, OwnDisk

if TYPE_CHECKING:
    import libvirt

FORMAT = "qcow2"


def disk_path(tools: Tools, guest: str, target: str, number: int = 1) -> str:
    """The path of a disk that is made of a backup. number: which of those of the name."""
    suffix = f".{number}" if number > 1 else ""
    folder = tools.admission_config.images_dir
    return os.path.join(folder, f"{guest}_{target}{suffix}.{FORMAT}")


def sync(path: str) -> None:
    """A file that was made is on the disk, with its name: the definition of the guest is soon, and
    a power cut would leave one whose disks are not whole. Raises OperationFailed."""
    for location in (path, os.path.dirname(path)):
        handle = os.open(location, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        except OSError as exc:
            raise errors.OperationFailed(f"{location} cannot be written: {exc.strerror}") from exc
        finally:
            os.close(handle)


class RestoreBuilder(GuestBuilder):
    """A guest from a backup. certificates: the folder with
    ca-cert.pem, client-cert.pem and client-key.pem. itself: it is the guest of the
    backup, which is nowhere any more; else a second one, with an identity of its own: with
    ``guest.seed`` the system in it gets one as well."""

    VERB = "virt.backup_restore"
    # told of each file before it has a content
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
        for disk in shown.disks:  # of its name that of a file is made
            if not record.is_target(disk.target):
                message = f"{shown.host} shows a disk {units.short_repr(disk.target)}"
                raise errors.BadAnswer(f"{message}, which is no name of one")

    @property
    def macs(self) -> dict[str, str]:
        """{MAC of an interface in the backup, in lower case: MAC of the second guest's}; none for
        the guest itself, which keeps them."""
        return {} if self.is_same_guest else macs.pairs(self.model.interfaces, self.new_macs)

    def check(self) -> None:
        """Each disk has a place, and the host room."""
        self.tools.report_step("check", f"checking what the backup {self.shown.ident} needs here")
        if self.guest.seed and not self.tools.seeder:
            raise errors.Unsupported("this host cannot seed: give seed=False")
        self.refuse_replaced()
        targets = {disk.target for disk in self.model.disks}
        for shown_disk in self.shown.disks:
            if shown_disk.target not in targets:
                raise errors.BadAnswer(f"the backup's definition has no disk {shown_disk.target}")
            if self.is_selected(shown_disk.target):
                self.builds.append(self.disk_build(shown_disk, self.choose_path(shown_disk.target)))
        self._warn_differences()
        self.admit(self.definition())

    def refuse_replaced(self) -> None:
        """Raises Refused for a guest of which an earlier restore keeps how it was: by the names of
        files, which come again, it is known which of the two a guest is."""
        replaced = replaced_guest.load(self.model.uuid or "") if self.is_same_guest else None
        if replaced:
            raise errors.Refused(
                f"how {replaced.name} was before {replaced.backup} took its place is still kept "
                f"here: "
                f"virt.backup_undo {replaced.name} brings that back, and over=True then restores "
                f"in "
                f"its place; virt.backup_confirm {replaced.name} deletes it"
            )

    def _warn_differences(self) -> None:
        shown = {shown_disk.target for shown_disk in self.shown.disks}
        for disk in self.model.disks:
            target = str(disk.target)
            if not self.is_selected(target):
                continue
            if target in shown and disk.shareable:
                self.tools.warn(
                    f"disk {target} was shared with other guests: the restored one is a qcow2 of "
                    f"{self.guest.name} alone"
                )
            if target in shown and inspect_guest.is_encrypted(disk):
                self.tools.warn(
                    f"disk {target} was encrypted by libvirt, and the restored one is not: encrypt "
                    "it again, or put it on storage that is"
                )
            if self.shown.damaged and target not in shown and not disk.removable_medium:
                self.tools.warn(f"disk {target} is not restored: the backup does not show it")
        self.warn_devices()

    def warn_devices(self) -> None:
        """Names the devices of a host that come along by their addresses."""
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
                f"{self.guest.name} has devices of the host that it was on, by their addresses "
                f"({', '.join([*host_devices, *nics])}): look whether it is to have those here "
                f"before it "
                "is started"
            )

    def is_selected(self, target: str) -> bool:
        """Whether this disk of the backup is made."""
        return bool(target)

    def disk_build(self, disk: ShownDisk, path: str) -> disks.DiskBuild:
        """How a disk of the backup is made."""
        spec = DiskSpec(name=disk.target, device="disk", size_bytes=disk.size_bytes)
        write = self._disk_writer(disk.target)
        return disks.DiskBuild(spec, make=True, format=FORMAT, path=path, write=write)

    def choose_path(self, target: str) -> str:
        """Where a disk goes. Raises AlreadyExists."""
        path = disk_path(self.tools, self.guest.name, target)
        if self.is_path_taken(path):
            raise errors.AlreadyExists(f"disk {target}: {path} exists already")
        return path

    def fetch(self) -> None:
        """Nothing to fetch before the guest has its place."""

    def reserve(self) -> None:
        # last of all: with the definition libvirt removes the variables that are there then
        undo = "put back the firmware variables and the TPM state"
        self.undo.push(undo, lambda: guest_state.restore_saved(self.saved_state))
        super().reserve()

    def make_disks(self) -> None:
        super().make_disks()
        self.put_state(self.read_state())

    def put_state(self, files: dict[str, bytes]) -> None:
        """The firmware variables and the TPM state of the backup become the guest's. What is there
        of an earlier guest stays, under another name."""
        existing, files = guest_state.state_paths(self.conn, self.dom), self.usable_state(files)
        for kind in guest_state.missing_kinds(self.model, files):
            self.tools.warn(self.initial_state(kind, existing.get(kind)))
        self.saved_state = guest_state.save_locations(self.dom, files)
        guest_state.install(self.dom, files, self.saved_state)
        for saved in self.saved_state:
            if saved.was_there:
                self.tools.warn(f"{saved.path}, which was there already, is {saved.kept} now")

    def usable_state(self, state: dict[str, bytes]) -> dict[str, bytes]:
        """What of the backup's state has a place here."""
        reason = guest_state.misfit(self.dom, state)
        if reason is None:
            return state
        self.state_problem = reason
        return {
            name: data for name, data in state.items() if not name.startswith(archive.VARIABLES)
        }

    def initial_state(self, kind: str, existing: str | None) -> str:
        """With which firmware variables or TPM state the guest begins, if none of the backup is put
        back. existing: where libvirt finds those of an earlier guest."""
        origin = f"new {kind}"
        if existing and connection.is_local(self.conn):
            origin = f"the {kind} that an earlier guest left in {existing}"
        return f"{self.guest.name} begins with {origin}: {self.no_state_reason}"

    @property
    def no_state_reason(self) -> str:
        """Why something of it does not come from the backup."""
        if self.state_problem:
            return self.state_problem
        if connection.is_local(self.conn):
            return "the backup has none"
        return "libvirt is on another machine than its minion"

    def read_state(self) -> dict[str, bytes]:
        """What the backup has of the guest beside its disks, by the digest of each file. Of one
        that is damaged nothing, where that cannot be read: its disks are restored all the same."""
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
            raise errors.BadAnswer(f"{self.shown.host} shows more state than any guest has")
        self.tools.report_step("state", "reading firmware variables and TPM state")
        with locks.temporary_folder(
            locks.runtime_folder(), "state-"
        ) as folder:  # in memory, and root's alone
            path = os.path.join(folder, "state")
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            argv = self._argv(record.STATE, path, record.RAW, shown.size_bytes)
            programs.run(argv, f"read the state in {self.shown.ident}")
            with open(path, "rb") as file:
                data = file.read(archive.MAX_ARCHIVE_BYTES + 1)
        return archive.unpack(data, f"the state in {self.shown.ident}")

    def system_work(self) -> disks.DiskBuild | None:
        """The disk with the system that was seeded."""
        disk = identity.seeded_disk(self.model)
        return next(
            (build for build in self.builds if disk and build.spec.name == disk.target), None
        )

    def interfaces(self) -> list[dict[str, Any]]:
        return interfaces_of_copy(self.dom, self.model)

    def seed(self) -> str | None:
        if not self.is_same_guest and self.seeded_work() is None:
            self.tools.warn(
                f"the system in {self.guest.name} was left as it is: it has the machine-id, host "
                "name, SSH host keys and minion of its original"
            )
        return super().seed()

    def finish(self, seeded: bool) -> None:
        super().finish(seeded or bool(self.model.record.seeded))

    def definition(self) -> Domain:
        """That of the backup with the disks that are made here. Drives are empty: what was in them
        is in no backup."""
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
        """What stays true of a guest whose disks are made of a backup."""
        new_record, old = GuestRecord(version=RECORD_VERSION), self.model.record
        new_record.created, new_record.seeded = old.created, old.seeded
        new_record.image, new_record.image_hash = old.image, old.image_hash
        return new_record

    def attach_disk(self, record: GuestRecord, disk: Disk, path: str) -> None:
        """The file becomes the disk's, and the guest's own."""
        disk.source = disk.backing_store = None
        node = disk.need()
        for encryption in node.findall("encryption"):  # the backup had the disk in plain
            node.remove(encryption)
        disk.shareable = False  # libvirt allows that of raw disks alone
        disk.type, disk.driver_type = "file", FORMAT
        disk.source.file = path
        record.disks.append(OwnDisk(target=disk.target, path=path))

    def _change_identity(self, built: Domain) -> None:
        assign_identity(built, self.new_macs)
        metadata.unmark(built.record)
        # how the other one is to be backed up was said of that alone
        built.record.entries = [
            entry for entry in built.record.entries if entry.key != backup_schedule.KEY
        ]

    def _disk_writer(self, target: str) -> Callable[[str], object]:
        def write(path: str) -> None:
            self.tools.report_step("copy", f"reading disk {target} of the backup", within_s=3600)
            # it is there before qemu-img opens it, for nobody else to read
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self.claim(path)
            programs.run(self._argv(target, path), f"read {target} of {self.shown.ident}",
                         timeout_s=None)  # fmt: skip
            sync(path)

        return write

    def _argv(
        self, target: str, path: str, format: str = FORMAT, max_bytes: int | None = None
    ) -> list[str]:
        """max_bytes: so many bytes are read, whatever is shown."""
        credentials = daemon.credentials(self.certificates)
        source = daemon.nbd(self.shown.host, self.shown.port, target)
        if max_bytes:
            source = {"driver": record.RAW, "size": max_bytes, "file": source}
        # of a damaged one what cannot be read becomes zeros
        options = ["--salvage"] if self.shown.damaged else []
        return ["qemu-img", "convert", *options, "--object", json.dumps(credentials), "-O", format,
                f"json:{json.dumps(source)}", path]  # fmt: skip
