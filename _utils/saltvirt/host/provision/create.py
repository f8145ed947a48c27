"""Creation of a guest from a GuestSpec."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.answers.created import PlannedGuest
from saltvirt.design.domain import NO_KVM
from saltvirt.design.source import disk_locations
from saltvirt.host.connection import translated
from saltvirt.host.domain import describe, stats
from saltvirt.host.provision import (
    admission,
    definition_check,
    disk_build,
    disks,
    guest_definition,
    kernels,
    macs,
    osinfo,
    seed_drive,
)
from saltvirt.host.provision.guest_builder import GuestBuilder, GuestRequest, no_report
from saltvirt.host.storage import file_mark
from saltvirt.images import cache
from saltvirt.spec.disk import DiskSpec
from saltvirt.xml.devices.disk import Disk

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    import libvirt

    from saltvirt.answers.created import CreatedGuest
    from saltvirt.design.caps import Caps
    from saltvirt.design.operating_system import GuestOs
    from saltvirt.host.provision.guest_builder import Tools
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain


class CreationBuilder(GuestBuilder):
    """Builds the guest of a GuestSpec."""

    def __init__(self, conn: libvirt.virConnect, spec: GuestSpec, tools: Tools) -> None:
        deploy = spec.deploy
        guest = GuestRequest(spec.name, bool(deploy.seed), bool(deploy.start), bool(spec.autostart))
        super().__init__(conn, guest, tools)
        self.spec, self.marks = spec, file_mark.Marks()
        self.caps: Caps | None = None
        self.warnings: list[str] = []
        self.pub_key: str | None = None
        images_dir, saltenv = tools.admission_config.images_dir, spec.deploy.saltenv
        self.kernels = kernels.set_local_paths(spec.boot, images_dir, saltenv)

    def check(self) -> None:
        self.tools.report_step("check", "checking the request")
        self.admit(self.plan())
        for warning in dict.fromkeys(self.warnings):
            if warning == NO_KVM:  # of the host, not of this guest
                self.tools.report_step("warning", warning)
            else:
                self.tools.warn(warning)
        for file in kernels.absent_files(self.conn, self.spec.boot, self.kernels):
            self.tools.warn(kernels.absence_warning(file))
        for mac, guest in macs.duplicates(self.conn, self.spec.name, self.spec.nics or ()):
            self.tools.warn(macs.duplicate_warning(mac, guest))

    def plan(self) -> Domain:
        """Return the guest's Domain and set its DiskBuilds; change nothing on the host."""
        self.caps = guest_definition.caps_for(self.conn, self.spec)
        virt_type = guest_definition.virt_type(self.caps, self.spec)
        location, freed = self.tools.admission_config.disks_location, self.leftover.locations
        self.builds = disks.plan(self.conn, self.spec, location, virt_type, freed)
        if self.tools.medium:
            self.add_medium(virt_type)
        elif self.seeded_work() and not self.tools.seeder:
            raise errors.Unsupported("this host cannot seed: pass seed=False")
        self.check_addresses()
        disks.refuse_in_use(self.conn, self.builds, self.spec.name)
        definition = self.definition()
        if self.guest.start:
            definition_check.refuse_missing(self.conn, definition)
        definition_check.refuse_rejected(self.conn, definition)
        return definition

    @functools.cached_property
    def guest_os(self) -> GuestOs | None:
        """The requested operating system. Raises InvalidInput if it is unknown."""
        return osinfo.find(self.spec.os) if self.spec.os else None

    def medium_bus(self, virt_type: str) -> str | None:
        """Return "scsi" if another disk needs virtio anyway, else None for the default.

        The kernels of some cloud images have no driver for a SATA drive.
        """
        first_model = next(
            (disk.model for disk in self.spec.disks or () if disk.device == "disk"), None
        )
        if self.guest_os and not self.guest_os.virtio_disk:
            return None
        by_virtio = virt_type in ("kvm", "qemu") and first_model in ("virtio", "scsi", None)
        return "scsi" if by_virtio else None

    def add_medium(self, virt_type: str) -> None:
        """Add a drive with the cloud-init volume, which is written once the interfaces are
        known."""
        path = seed_drive.path(self.tools.admission_config.images_dir, self.spec.name)
        drive = DiskSpec(
            name=seed_drive.NAME, device="cdrom", model=self.medium_bus(virt_type),
            source_file=path, format="raw",
        )  # fmt: skip
        self.spec.disks = [*(self.spec.disks or ()), drive]
        self.builds.append(disk_build.DiskBuild(drive, True, "raw", path, write=self.write_medium))

    def interfaces(self) -> list[dict[str, Any]]:
        macs_by_order = [nic["mac"] for nic in describe.nics(stats.tree(self.dom)).values()]
        nic_fields = [vars(spec) for spec in self.spec.nics or ()]
        return [
            {**fields, "mac": mac} for mac, fields in zip(macs_by_order, nic_fields, strict=True)
        ]

    def nic_names(self) -> dict[str, str]:
        return {str(nic["name"]): nic["mac"] for nic in self.interfaces() if nic["name"]}

    def write_medium(self, path: str) -> None:
        """Write the cloud-init volume and store the guest's public key."""
        if self.tools.medium:
            self.pub_key = self.tools.medium(self.spec.name, path, self.interfaces())

    def check_addresses(self) -> None:
        """Raise InvalidInput if interfaces have addresses that no seeding would write."""
        nic_names = [nic.name for nic in self.spec.nics or () if nic.addresses]
        writes_addresses = self.tools.medium or (
            self.seeded_work() and self.spec.deploy.seeds_by_us
        )
        if nic_names and not writes_addresses:
            raise errors.InvalidInput(
                f"interface {nic_names[0]}: addresses are written when the guest is seeded "
                "from an image, with seed.apply or cloud-init, but this guest is not seeded"
            )

    def seed(self) -> str | None:
        return self.pub_key if self.tools.medium else super().seed()

    def fetch(self) -> None:
        for build in self.builds:
            if build.make and build.spec.image:
                build.image = self.tools.image(self.conn, build.spec)
                disks.check_image_size(build)
        kernels.fetch(self.kernels, self.tools)

    def make_disks(self) -> None:
        with disks.images_unchanged(self.builds):
            super().make_disks()

    def definition(self) -> Domain:
        return guest_definition.build(
            self.conn, self.spec, self.builds, self.caps, self.warnings, self.guest_os
        )


def preview(
    conn: libvirt.virConnect, spec: GuestSpec, tools: Tools, definition: bool = False
) -> dict[str, Any]:
    """Return what ``create`` would answer, as far as it is known in advance; change nothing.

    definition: add the fields of a PlannedGuest.
    """
    with translated(f"create {spec.name}"):
        creation = CreationBuilder(conn, spec, replace(tools, report_step=no_report))
        admission.refuse_name_in_use(conn, spec.name)
        creation.find_leftover()
        creation.check()
        creation.tools.inspect_images(conn, creation.builds)
        tree = creation.definition().need()
        return {
            "name": spec.name,
            "host": conn.getHostname(),
            "disks": [disk.to_answer() for disk in creation.result_disks(tree)],
            "nics": list(describe.nics(tree).values()),
            **({"warnings": creation.tools.warnings} if creation.tools.warnings else {}),
            **(_planned_guest(creation, tree).to_answer() if definition else {}),
        }


def _planned_guest(creation: CreationBuilder, tree: Element) -> PlannedGuest:
    bases: dict[str, str] = {}
    for disk in map(Disk, tree.iterfind("devices/disk")):
        locations = disk_locations(disk)
        build = next(
            (b for b in creation.builds if b.source and b.source.locations() & locations), None
        )
        base = _planned_base(creation, build) if build and build.make else None
        if base and disk.target:
            bases[disk.target] = base
    for display in tree.iterfind("devices/graphics"):
        display.attrib.pop("passwd", None)
    return PlannedGuest(ElementTree.tostring(tree, encoding="unicode"), bases)


def _planned_base(creation: CreationBuilder, build: disk_build.DiskBuild) -> str | None:
    """Return the backing file of a new disk; the cache folder if the image is not here yet."""
    if not build.spec.overlay_image:
        return build.spec.backing_store_path
    if build.image:
        return build.image.path
    return cache.folder(creation.tools.admission_config.images_dir)


def create(conn: libvirt.virConnect, spec: GuestSpec, tools: Tools) -> CreatedGuest:
    """Create the guest of a GuestSpec; return the answer of ``virt.init``.

    Raises an error of saltvirt.errors after undoing all changes.
    """
    with translated(f"create {spec.name}"):
        return CreationBuilder(conn, spec, tools).run()
