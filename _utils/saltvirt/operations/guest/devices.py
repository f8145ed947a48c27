"""Attach disks, interfaces and ISO images to a guest, and detach them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from saltvirt import errors, sanitize
from saltvirt.answers.guest_calls import (
    FETCH_IMAGE,
    GET_XML,
    ImageRequest,
    NamedGuestRequest,
)
from saltvirt.answers.guest_changes import UpdatedGuest
from saltvirt.design import identity
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core.operation import Checked, Result
from saltvirt.operations.guest.update import UpdateGuest
from saltvirt.xml.domain.domain import Domain

# the name of the drive that is added for an ISO image
DRIVE = "cdrom"
_TARGET = re.compile("(vd|sd|hd|xvd|fd)[a-z]{1,2}")


def _drive(domain: Domain, requested: object) -> dict[str, Any]:
    """Return the argument for a CD drive, without its medium. requested: its name or target; True,
    also as a text, or None: the first one, or a new one. The drive of the cloud-init volume is not
    considered.

    Raises NotFound."""
    seeds = {own_disk.path for own_disk in domain.record.disks}
    names_by_target = identity.disk_names(domain)
    drives = [
        disk.target or ""
        for disk in domain.disks
        if disk.device == "cdrom" and disk.source.file not in {*seeds} - {None}
    ]
    if str(requested or "").lower() not in ("", "true"):
        drives = [
            target for target in drives if str(requested) in (target, names_by_target.get(target))
        ]
        if not drives:
            raise errors.NotFound(f"{domain.name} has no CD drive {requested}")
    if not drives:
        return {"name": DRIVE, "device": "cdrom"}
    target = drives[0]
    unnamed = target if DRIVE in names_by_target.values() else DRIVE
    name = names_by_target.get(target, unnamed)
    return {"name": name, "target": target, "device": "cdrom"}


def _medium(iso: str) -> dict[str, str | None]:
    """Return the arguments for a medium that is on the host."""
    if iso.startswith("pool://"):
        pool, _, volume = iso.removeprefix("pool://").partition("/")
        return {"pool": pool, "source_file": volume}
    return {"source_file": iso}


# paths of changes that add or remove a device; longer paths are of its settings
_DISK, _INTERFACE = re.compile("disks:[^:]+"), re.compile("nics:(..:){5}..")


def _added(planned: UpdatedGuest, device: re.Pattern[str]) -> bool:
    """Return whether such a device would be added."""
    return any(device.fullmatch(item.path) and item.old is None for item in planned.changes)


class _DeviceChange(UpdateGuest):
    """A change of one device."""

    @property
    def _plans_first(self) -> bool:
        return True


class AttachDisk(_DeviceChange):
    """Attach a disk: a new one of a size, or an existing file or volume."""

    verb = "virt.attach"

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        disk: Mapping[str, Any],
        overcommit: bool | None = None,
    ) -> None:
        self.disk = {word: value for word, value in disk.items() if value is not None}
        if "size" in self.disk:
            self.disk.setdefault("existing", False)
        super().__init__(fleet, name, {"disks": [self.disk]}, overcommit)

    def _validate(self) -> None:
        name, given = self.disk["name"], {"size", "source_file"} & self.disk.keys()
        if len(given) != 1 and not (self.disk.get("existing") and "source_file" not in given):
            raise errors.InvalidInput(
                f"disk {name}: give either the size of a new disk, or the source of an existing one"
            )
        if _TARGET.fullmatch(str(name)):
            raise errors.InvalidInput(
                f"disk {name}: that is a target, which libvirt assigns: give a name such as data"
            )
        super()._validate()

    def _done(self, host: str, state: str) -> Result:
        planned = self._plan(host)
        if planned.changes:
            return self._apply(host, state)
        # an update would give the disk the name of the request
        comment, _, details = self._described(host, state, planned, "")
        return Result(self.name, comment, {}, details)

    def _require(self, host: str, planned: UpdatedGuest) -> None:
        disks = [item for item in planned.changes if item.path.startswith("disks:")]
        replaced = [item for item in disks if _DISK.fullmatch(item.path)]
        added = {item.new for item in replaced if item.old is None}
        # with another bus, a disk that the guest has would get another target
        moves = any(item.new is None and item.old in added for item in replaced)
        if moves or (not added and (disks or planned.warnings)):
            text = "; ".join(planned.warnings) or "virt.resize grows it, virt.update changes it"
            raise errors.AlreadyExists(
                f"{self.name} on {host} has a disk {self.disk['name']} already: {text}"
            )


class AttachInterface(_DeviceChange):
    """Attach an interface to a network or bridge. force: also with the MAC of another guest."""

    verb = "virt.attach"

    def __init__(
        self, fleet: Fleet, name: str, interface: Mapping[str, Any], force: bool = False
    ) -> None:
        interface = {word: value for word, value in interface.items() if value is not None}
        options = {"interfaces": [interface], "detach_interfaces": []}
        super().__init__(fleet, name, options, force=force)

    def _require(self, host: str, planned: UpdatedGuest) -> None:
        mac = self.options["interfaces"][0].get("mac")
        if mac and not _added(planned, _INTERFACE):
            raise errors.AlreadyExists(
                f"{self.name} on {host} has an interface {mac} already: virt.update changes it"
            )
        super()._require(host, planned)


class _Medium(_DeviceChange):
    """A change of the medium of a CD drive. drive: its name or target; True, None: the first."""

    def __init__(
        self, fleet: Fleet, name: str, drive: object, medium: Mapping[str, str | None]
    ) -> None:
        self.drive, self.medium = drive, dict(medium)
        super().__init__(fleet, name, {"disks": [{"name": DRIVE, "device": "cdrom", **medium}]})

    @property
    def _writes_disks(self) -> bool:
        return False

    def _locate(self, name: str) -> tuple[str, str]:
        """Return (host, state) of the guest, and choose its drive."""
        host, state = super()._locate(name)
        definition = GET_XML.ask(self.fleet, host, NamedGuestRequest(name))
        drive = _drive(Domain.fromstring(definition), self.drive)
        self.options = {"disks": [{**drive, **self.medium}]}
        return host, state


class InsertIso(_Medium):
    """Insert an ISO image into a CD drive of the guest, which is added if there is none.

    iso: ``salt://…``, a path of the host or ``pool://POOL/VOLUME``.
    """

    verb = "virt.attach"

    def __init__(self, fleet: Fleet, name: str, iso: str, drive: object = None) -> None:
        self.iso = str(iso)
        self.is_remote = "://" in self.iso and not self.iso.startswith("pool://")
        super().__init__(fleet, name, drive, {} if self.is_remote else _medium(self.iso))

    def _validate(self) -> None:
        if "://" not in self.iso and not self.iso.startswith("/"):
            raise errors.InvalidInput(
                f"iso {self.iso} is neither an absolute path nor an address such as salt://… or "
                "pool://POOL/VOLUME"
            )
        super()._validate()

    def _fetch(self, host: str, *, test: bool) -> bool:
        """Fetch the image to the host, and let the drive use it. Return False if it is not there,
        because of ``test``."""
        if not self.is_remote:
            return True
        request = ImageRequest(self.iso, cdrom=True, test=test)
        path = FETCH_IMAGE.ask(self.fleet, host, request).path
        self.options["disks"][0]["source_file"] = path
        return path is not None

    def _planned(self, host: str, state: str) -> Checked:
        if not self._fetch(host, test=True):
            iso = sanitize.address(self.iso)
            comment = f"{iso} would be fetched to {host} and inserted into {self.name}"
            details = {"host": host, "state": state, "pending": []}
            return Checked(self.name, comment, {"iso": {"old": None, "new": iso}}, details)
        return super()._planned(host, state)

    def _done(self, host: str, state: str) -> Result:
        self._fetch(host, test=False)
        return super()._done(host, state)


class EjectIso(_Medium):
    """Eject the medium of a CD drive."""

    verb = "virt.detach"

    def __init__(self, fleet: Fleet, name: str, drive: object) -> None:
        super().__init__(fleet, name, drive, {"source_file": None})

    def _require(self, host: str, planned: UpdatedGuest) -> None:
        if _added(planned, _DISK):  # a drive would be added
            raise errors.NotFound(f"{self.name} on {host} has no CD drive with a medium")


class DetachDisk(_DeviceChange):
    """Detach a disk, which is not deleted. force: also the boot disk."""

    verb = "virt.detach"

    def __init__(self, fleet: Fleet, name: str, disk: str, force: bool = False) -> None:
        super().__init__(fleet, name, {"detach": [str(disk)]})
        self.disk, self.force = str(disk), force

    def _plan(self, host: str) -> UpdatedGuest:
        definition = GET_XML.ask(self.fleet, host, NamedGuestRequest(self.name))
        domain = Domain.fromstring(definition)
        boots = identity.boot_disk(domain)
        target = boots.target if boots is not None else None
        boot_names = {target, identity.disk_names(domain).get(target or "")}
        if self.disk in boot_names and not self.force:
            raise errors.Refused(
                f"{self.name} on {host} boots from {self.disk}: force=True detaches it anyway"
            )
        return super()._plan(host)


class DetachInterface(_DeviceChange):
    """Detach an interface. interface: its MAC or name."""

    verb = "virt.detach"

    def __init__(self, fleet: Fleet, name: str, interface: str) -> None:
        super().__init__(fleet, name, {"detach_interfaces": [str(interface)]})
