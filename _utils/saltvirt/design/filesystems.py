"""Folders of the host that a guest with a machine can mount."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import is_given, put
from saltvirt.errors import InvalidInput, Unsupported
from saltvirt.spec.filesystem import PLAN9, VIRTIOFS
from saltvirt.xml.devices.filesystem import Filesystem

if TYPE_CHECKING:
    from saltvirt.design.context import Context
    from saltvirt.spec.filesystem import FilesystemSpec
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.domain.domain import Domain

# libvirt's words
_DRIVERS = {VIRTIOFS: "virtiofs", PLAN9: "path"}


def apply(spec: GuestSpec, domain: Domain, context: Context) -> None:
    """Apply a GuestSpec's filesystems to a domain; a given list is complete."""
    if spec.filesystems is None:
        return
    if not context.qemu:
        raise Unsupported(f"filesystems: guests of {context.virt_type} have none")
    existing = {item.target: item for item in domain.filesystems}
    tags = {item.target for item in spec.filesystems}
    for tag, item in existing.items():
        if tag not in tags:
            domain.filesystems.remove(item)
    for filesystem_spec in spec.filesystems:
        item = existing.get(filesystem_spec.target) or domain.filesystems.append(Filesystem())
        _edit(filesystem_spec, item)
    if any(item.driver_type == _DRIVERS[VIRTIOFS] for item in domain.filesystems):
        _share_memory(domain)


def _edit(spec: FilesystemSpec, item: Filesystem) -> None:
    driver = _DRIVERS[spec.driver] if spec.driver else item.driver_type or _DRIVERS[VIRTIOFS]
    _check(spec, driver)
    if item.driver_type not in (None, driver):
        item.access_mode = item.cache_mode = None
    item.type, item.driver_type = "mount", driver
    item.source_dir, item.target = spec.source, spec.target
    put(item, spec)
    if driver == _DRIVERS[VIRTIOFS]:
        item.access_mode = "passthrough"


def _check(spec: FilesystemSpec, driver: str) -> None:
    """Raise InvalidInput for settings of another driver."""
    is_virtiofs = driver == _DRIVERS[VIRTIOFS]
    if is_given(spec.cache) and not is_virtiofs:
        raise InvalidInput(f"filesystems: {spec.target}: cache is for driver {VIRTIOFS}")
    if is_given(spec.accessmode) and is_virtiofs and spec.accessmode != "passthrough":
        raise InvalidInput(
            f"filesystems: {spec.target}: accessmode {spec.accessmode} is for driver {PLAN9}"
        )


def _share_memory(domain: Domain) -> None:
    """Share the guest's memory with virtiofsd, as virtiofs requires."""
    backing = domain.memory_backing
    if backing.access == "private" or backing.source == "anonymous":
        raise InvalidInput("filesystems: virtiofs needs mem: access: shared, and source: memfd")
    if not backing.source and not backing.hugepages:
        backing.source = "memfd"
    backing.access = "shared"
