"""Creation of a guest on this host from any source; on failure, all changes are undone."""

from __future__ import annotations

import abc
import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.answers.created import CreatedDisk, CreatedGuest, CreatedNic
from saltvirt.design import identity
from saltvirt.design.source import disk_locations
from saltvirt.host.connection import libvirt, translated
from saltvirt.host.domain import (
    creation,
    describe,
    lifecycle,
    lookup,
    metadata,
    purge,
    removal,
    stats,
)
from saltvirt.host.provision import (
    admission,
    disk_build,
    disk_journal,
    disks,
    image_location,
    progress_rate,
)
from saltvirt.host.provision.progress_rate import StepReporter
from saltvirt.host.storage import file_mark, files, usage
from saltvirt.images import cache, sources
from saltvirt.revert import UndoStack
from saltvirt.rights import confidential
from saltvirt.xml.devices.disk import Disk
from saltvirt.xml.domain.domain import Domain

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from saltvirt.placement.facts import PlacementRequest
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.xml.domain.metadata import GuestRecord, OwnDisk

# timeout of seeding, which reports no progress
SEEDING_S = 1800


def no_report(_step: str, _message: str, /, **_data: Any) -> None:
    """A StepReporter that reports nothing."""


# (guest name, path, format, interfaces) -> the guest's public key (PEM)
Seeder = Callable[[str, str, str, list[dict[str, Any]]], str]
# (guest name, path, interfaces) -> the same
Medium = Callable[[str, str, list[dict[str, Any]]], str]


# (guest name, existing volume, path, interfaces): creates another volume at the path
Reissue = Callable[[str, str, str, list[dict[str, Any]]], None]


def refuse_seeding(*_arguments: object) -> str:
    """The Seeder and Medium of a guest that is only planned. Raises OperationFailed."""
    raise errors.OperationFailed("a planned guest is not seeded")


@dataclass
class Tools:
    """Dependencies of guest creation outside the library.

    download: images.sources.SaltFiles, for ``salt://`` images. get_url: (source, target path), for
    kernels. begin: starts slow preparations for seeding while disks are copied. seeder: (guest
    name, path, format, interfaces) -> public key of the guest (PEM); None if the host cannot seed.
    medium: (guest name, path, interfaces) -> the key; creates a cloud-init volume instead. reissue:
    creates a cloud-init volume from another one, with a new identity, which the next seeded disk
    shares. report_step: (step, message, **data), called before each step. warnings: messages for
    the operator.
    """

    admission_config: admission.AdmissionConfig
    download: sources.SaltFiles | None = None
    get_url: Callable[[str, str], object] | None = None
    begin: Callable[[], object] | None = None
    seeder: Seeder | None = None
    medium: Medium | None = None
    reissue: Reissue | None = None
    report_step: StepReporter = no_report
    warnings: list[str] = field(default_factory=list)

    def image(self, conn: libvirt.virConnect, disk: DiskSpec) -> cache.CachedImage:
        """Return the CachedImage for a DiskSpec; download it if this host does not have it yet."""
        source = disk.image or ""
        image_file = image_location.find(conn, source)
        shown = sources.shown(source)
        self.report_step("image", f"fetching {shown}")
        cached_image: cache.CachedImage = cache.fetch(
            source, self.admission_config.images_dir, self.download, disk.image_hash,
            local_file=image_file, progress=progress_rate.ProgressReporter(self.report_step,
            "fetch", f"fetching {shown}"),
        )  # fmt: skip
        return cached_image

    def seed(self, name: str, path: str, format: str, interfaces: list[dict[str, Any]]) -> str:
        """Seed the system on a disk; its public key. Raises Unsupported."""
        if not self.seeder:
            raise errors.Unsupported("this host cannot seed: pass seed=False")
        return self.seeder(name, path, format, interfaces)

    def warn(self, text: str) -> None:
        """Send a warning to the operator, now and in the answer."""
        self.warnings.append(text)
        self.report_step("warning", text)

    def inspect_images(
        self, conn: libvirt.virConnect, builds: Collection[disk_build.DiskBuild]
    ) -> None:
        """Set the images of these builds for a test, without downloading.

        An image that is not here yet has no size.
        """
        for build in builds:
            if not build.make or not build.spec.image:
                continue
            image_file = image_location.find(conn, build.spec.image)
            images_dir, image_hash = self.admission_config.images_dir, build.spec.image_hash
            build.image = cache.find_local(
                build.spec.image, images_dir, self.download, image_hash, image_file
            )
            if build.image:
                disks.check_image_size(build)


@dataclass
class GuestRequest:
    """Options of a new guest besides its definition."""

    name: str
    seed: bool = False
    start: bool = False
    autostart: bool = False


@dataclass
class CreationLeftovers:
    """Leftovers of an interrupted creation, which the next creation of the guest removes.

    locations: real paths, and (pool, volume). sizes: location of a disk to the bytes reserved for
    it.
    """

    locations: set[str | tuple[str, str]] = field(default_factory=set)
    sizes: dict[str | tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def of_disks(cls, paths: Iterable[str]) -> CreationLeftovers:
        """Return the CreationLeftovers of disks without a guest."""
        return cls({*paths})

    def add(self, own_disks: Iterable[OwnDisk], paths: Iterable[str]) -> None:
        """Add the disks of a guest.

        own_disks: the disks in its record. paths: the real paths of its disks that will be removed.
        """
        self.locations.update(paths)
        for own_disk in own_disks:
            location = (
                (own_disk.pool, own_disk.volume or "")
                if own_disk.pool
                else files.real(own_disk.path or "")
            )
            self.locations.add(location)
            self.sizes[location] = own_disk.size_bytes or 0

    def without(self, request: PlacementRequest) -> PlacementRequest:
        """Return the request without what the host reserved for the leftovers."""
        if not self.sizes:
            return request
        disks = tuple(
            replace(disk, size_bytes=max(0, disk.size_bytes - self.sizes.get(disk.path or "", 0)))
            for disk in request.disks
        )
        pools = dict(request.pools)
        for location, size in self.sizes.items():
            if isinstance(location, tuple) and location[0] in pools:
                pools[location[0]] = max(0, pools[location[0]] - size)
        return replace(request, disks=disks, pools=pools)


class GuestBuilder(abc.ABC):
    """Builds one guest. Subclasses implement ``check``, ``fetch`` and ``definition``."""

    VERB = "virt.init"
    # the mark of new files
    marks: file_mark.Marks | None = None
    # set by reserve()
    dom: libvirt.virDomain

    def __init__(self, conn: libvirt.virConnect, guest: GuestRequest, tools: Tools) -> None:
        self.conn = conn
        self.guest = guest
        self.tools = tools
        self.builds: list[disk_build.DiskBuild] = []
        self.undo = UndoStack()
        self.leftover = CreationLeftovers()

    def run(self) -> CreatedGuest:
        """Create the guest; the answer of ``virt.init``."""
        # before waiting for the lock of a creation in progress
        admission.refuse_name_in_use(self.conn, self.guest.name)
        with self.tools.admission_config.guest(self.VERB, *self.guests()):
            return self.run_locked()

    def guests(self) -> list[str]:
        """Return the names of the guests to lock."""
        return [self.guest.name]

    def run_locked(self) -> CreatedGuest:
        """Create the guest; its lock is held."""
        admission.refuse_name_in_use(self.conn, self.guest.name)
        self.find_leftover()
        self.check()
        if self.guest.seed and self.tools.begin:
            self.tools.begin()
        self.fetch()
        self.clean_leftover()
        return self.make_atomically()

    def make_atomically(self) -> CreatedGuest:
        """Create the guest, and undo all changes on failure."""
        try:
            with self.undo:
                guest_made = self.make()
                self.undo.success()
        except errors.VirtError as exc:
            if not self.undo.failed:
                raise
            # after Refused the runner would try the next host
            kind = errors.OperationFailed if isinstance(exc, errors.Refused) else type(exc)
            message = exc.reason if isinstance(exc, errors.Refused) else exc.text
            raise kind(f"{message}; could not undo: {'; '.join(self.undo.failed)}") from exc
        return guest_made

    def make(self) -> CreatedGuest:
        """Perform the steps that change something; each pushes its undo."""
        self.reserve()
        self.make_disks()
        pub_key = self.seed()
        self.finish(seeded=pub_key is not None)
        if self.guest.start:
            self.start()
        return self.result(pub_key)

    @abc.abstractmethod
    def check(self) -> None:
        """Validate the request before anything is changed or downloaded."""

    @abc.abstractmethod
    def fetch(self) -> None:
        """Set the image of each build that has one, and check its size."""

    @abc.abstractmethod
    def definition(self) -> Domain:
        """Return the Domain, with a record of the disks to create."""

    def find_leftover(self) -> None:
        """Find the leftovers of an interrupted creation; change nothing.

        Raises Incomplete if that guest was ever started, and OperationFailed if one of its disks
        must be kept, since nothing would refer to that disk without the guest's record.
        """
        cache_dir, name = self.tools.admission_config.cache_dir, self.guest.name
        disk_leftovers = disk_journal.find_leftovers(self.conn, name)
        extra_links = map(files.real, disk_leftovers.extra_links)
        self.leftover = CreationLeftovers.of_disks([*disk_leftovers.delete, *extra_links])
        self.leftover.locations.update(disk_leftovers.volumes())
        dom = creation.interrupted(self.conn, name)
        if dom is None:
            return
        creation.refuse_used(dom)
        purge_plan = purge.plan(self.conn, dom, cache_dir)
        for path in purge_plan.uncertain:
            raise errors.OperationFailed(
                f"{name} was partially created by an interrupted init, and {path} is kept: "
                f"{purge_plan.keep[path]}; run salt-run virt.repair name={name}"
            )
        recorded_disks = metadata.of_domain(dom).disks
        removable = [d for d in recorded_disks if self.real_path(d) not in purge_plan.keep]
        self.leftover.add(removable, purge_plan.delete)

    def real_path(self, own_disk: OwnDisk) -> str:
        """Return the real path of a recorded disk; empty for a volume that does not exist."""
        return files.real(metadata.disk_path(self.conn, own_disk) or "")

    def clean_leftover(self) -> None:
        """Remove the leftovers found by :meth:`find_leftover`, after all checks of the request."""
        name = self.guest.name
        disk_journal.remove(self.conn, name)
        with self.tools.admission_config.lock():
            dom = creation.interrupted(self.conn, name)
            if dom is not None:
                creation.refuse_used(dom)
                self.tools.report_step("clean", "removing the leftovers of an interrupted init")
                purge.purge(self.conn, name, self.tools.admission_config.cache_dir, force=False)
        self.leftover = CreationLeftovers()

    def is_path_taken(self, path: str) -> bool:
        """Return whether a path is occupied by something other than a leftover."""
        return os.path.lexists(path) and files.real(path) not in self.leftover.locations

    def admit(self, definition: Domain) -> PlacementRequest:
        """Return the PlacementRequest. Raises Refused if this host cannot accept the guest."""
        request = admission.request_of(definition, self.builds)
        net_request = self.leftover.without(request)
        admission.check(self.conn, self.tools.admission_config, net_request)
        return request

    def reserve(self) -> None:
        """Admit and define the guest, which reserves its capacity."""
        self.tools.report_step("admit", "reserving capacity")
        built = self.definition()
        self.fill(built.record)
        with self.tools.admission_config.lock():
            request = self.admit(built)
            # the check is repeated, since the image was downloaded meanwhile
            disks.refuse_in_use(self.conn, self.builds, self.guest.name)
            self.dom = lookup.define(self.conn, built.tostring())
            self.undo.push(f"undefine {self.guest.name}", self.forget)
            admission.recheck(self.conn, self.tools.admission_config, request)
        self.check_variables()

    def check_variables(self) -> None:
        """Raise AlreadyExists if libvirt chose another guest's file for the firmware variables."""
        path = Domain.fromstring(self.dom.XMLDesc(0)).os.variables
        if path:
            used = usage.read(self.conn, self.dom.UUIDString(), images=False)
            for other_guest in used.guests(usage.keys_of(self.conn, path)):
                raise errors.AlreadyExists(
                    f"libvirt would store the firmware variables of {self.guest.name} in {path}, "
                    f"which belongs to {confidential.sensitive(other_guest)}"
                )

    def fill(self, record: GuestRecord) -> None:
        """Complete the record, which marks the guest as unfinished by this process."""
        record.created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record.creating = metadata.worker()
        record.mark = self.marks.value if self.marks else None
        for image in [build.image for build in self.builds if build.image][:1]:
            record.image = sources.shown(image.source)
            record.image_hash = image.sha256
        sizes = {(b.path, b.volume): b.size_bytes for b in self.builds}
        for own_disk in record.disks:
            own_disk.size_bytes = sizes.get((own_disk.path, own_disk.volume))

    def stop(self) -> None:
        """Stop the guest before its disks are deleted; it may have been started."""
        with contextlib.suppress(errors.NotFound):
            dom = lookup.lookup(self.conn, self.guest.name)
            if dom.isActive():
                dom.destroy()

    def forget(self) -> None:
        """Undo the definition, after the disks.

        It is kept if a disk could not be removed, since nothing else refers to that disk.
        """
        self.stop()
        if self.undo.failed:
            raise errors.OperationFailed(
                f"it remains defined: run salt-run virt.repair name={self.guest.name}"
            )
        with contextlib.suppress(errors.NotFound):
            removal.undefine(self.conn, lookup.lookup(self.conn, self.guest.name), everything=True)

    def make_disks(self) -> None:
        """Create the disks from their images, or empty."""
        for build in self.builds:
            if build.make:
                self.tools.report_step("disk", f"creating disk {build.spec.name}", path=build.path)
                progress = progress_rate.ProgressReporter(
                    self.tools.report_step, "copy", f"copying disk {build.spec.name}"
                )
                uuid = self.dom.UUIDString()
                disks.make(self.conn, build, self.undo, progress, uuid, self.marks)
                self.undo.push(f"stop {self.guest.name}", self.stop)

    def system_work(self) -> disk_build.DiskBuild | None:
        """Return the disk with the guest's system: the first one created from an image."""
        return next((b for b in self.builds if b.make and b.spec.image), None)

    def seeded_work(self) -> disk_build.DiskBuild | None:
        """Return the disk to seed, or None."""
        return self.system_work() if self.guest.seed else None

    def seed(self) -> str | None:
        """Seed the system disk; its public key, or None without seeding."""
        build = self.seeded_work()
        if build is None:
            return None
        self.tools.report_step("seed", f"seeding disk {build.spec.name}", within_s=SEEDING_S)
        format = build.format or "raw"
        return self.tools.seed(self.guest.name, build.file, format, self.interfaces())

    def interfaces(self) -> list[dict[str, Any]]:
        """Return the interfaces for network configuration while seeding: dicts with ``mac``."""
        return []

    def nic_names(self) -> dict[str, str]:
        """Return {name: MAC} of the interfaces requested by name, once the guest is defined."""
        return {}

    def finish(self, seeded: bool) -> None:
        """Mark the guest as complete in its record."""
        record = metadata.of_domain(self.dom).copy()
        record.creating = record.mark = None
        record.seeded = seeded
        system = self.system_work() if seeded else None
        for own_disk in record.disks:
            if system is not None and _is_same_disk(own_disk, system):
                own_disk.seeded = True
        for name, mac in self.nic_names().items():
            identity.name_nic(record, name, mac)
        with translated(f"finish {self.guest.name}"):
            metadata.write(self.dom, record)
            if self.guest.autostart:
                lifecycle.set_autostart(self.dom, True)

    def start(self) -> None:
        """Start the guest.

        While it was shut off, another guest may have taken its capacity if the policy does not
        count stopped guests in full.
        """
        self.tools.report_step("start", "starting it")
        with self.tools.admission_config.lock():
            admission.check_start(self.conn, self.tools.admission_config, self.dom)
            lifecycle.start(self.dom)

    def result(self, pub_key: str | None) -> CreatedGuest:
        """Return the answer of ``virt.init``, as read back from libvirt."""
        tree = stats.tree(self.dom)
        nics = describe.nics(tree).values()
        return CreatedGuest(
            name=self.dom.name(),
            host=self.conn.getHostname(),
            uuid=self.dom.UUIDString(),
            state=lookup.state(self.dom),
            disks=tuple(self.result_disks(tree)),
            nics=tuple(
                CreatedNic(n["mac"], n["type"], _first_value(n.get("source"))) for n in nics
            ),
            graphics=_shown(describe.graphics(tree)),
            pub_key=pub_key,
            warnings=tuple(self.tools.warnings),
        )

    def result_disks(self, tree: Element) -> list[CreatedDisk]:
        """Return the disks as libvirt has them now."""
        disks_by_target = {disk.target: disk for disk in map(Disk, tree.iterfind("devices/disk"))}
        made_disks = []
        for target, disk in describe.disks(tree, {}, False).items():
            locations = disk_locations(disks_by_target[target])
            build = next(
                (b for b in self.builds if b.source and b.source.locations() & locations), None
            )
            in_pool = build if build and build.pool else None
            made_disks.append(
                CreatedDisk(
                    target,
                    path=build.path if build else disk["file"],
                    format=disk.get("file format") or (build.format if build else None),
                    size_bytes=build.size_bytes if build else None,
                    pool=in_pool.pool if in_pool else None,
                    volume=in_pool.volume if in_pool else None,
                )
            )
        return made_disks


def assign_identity(built: Domain, new_macs: Iterable[str]) -> None:
    """Remove what identifies the guest from a definition that is a copy.

    new_macs: MAC addresses of its interfaces.
    """
    built.uuid = None
    # without a UUID, libvirt takes it from sysinfo
    for system in built.need().findall("sysinfo/system"):
        for entry in system.findall("entry[@name='uuid']"):
            system.remove(entry)
    for nic, mac in zip(built.interfaces, new_macs, strict=True):
        nic.mac, nic.target = mac, None
        if nic.virtualport:
            nic.virtualport.interfaceid = None
    for cid in built.need().iterfind("devices/vsock/cid"):
        cid.attrib.pop("address", None)  # libvirt then chooses an unused one
        cid.set("auto", "yes")
    reset_genid(built)
    for display in built.graphics:
        display.port, display.autoport = None, True


def reset_genid(built: Domain) -> None:
    """Remove the generation ID from a definition.

    libvirt then generates another, so that the guest's system notices that it is a copy or was
    reverted.
    """
    genid = built.need().find("genid")
    if genid is not None:
        genid.text = None


def interfaces_of_copy(dom: libvirt.virDomain, original: Domain) -> list[dict[str, Any]]:
    """Return the interfaces of a copy, each with the MAC address of the original's interface."""
    new_interfaces = Domain.fromstring(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)).interfaces
    pairs = zip(new_interfaces, original.interfaces, strict=True)
    return [{"mac": new.mac, "original_mac": old.mac} for new, old in pairs]


def _is_same_disk(own_disk: OwnDisk, build: disk_build.DiskBuild) -> bool:
    """Return whether a recorded disk is the one of this build."""
    if own_disk.pool or build.pool:
        return (own_disk.pool, own_disk.volume) == (build.pool, build.volume)
    return own_disk.path == build.path


def _shown(display: dict[str, str]) -> dict[str, str | None] | None:
    """Return the attributes of a display, with None for those not set; None without a display."""
    if display["type"] == "None":
        return None
    return {key: None if value == "None" else value for key, value in display.items()}


def _first_value(source: dict[str, str] | None) -> str | None:
    return next(iter(source.values()), None) if source else None
