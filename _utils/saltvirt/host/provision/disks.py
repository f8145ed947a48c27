"""Planning and creation of a guest's disks.

``plan`` validates and changes nothing. ``make`` creates the disks.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast
from xml.etree import ElementTree

from saltvirt import errors
from saltvirt.design.source import Source
from saltvirt.host import connection
from saltvirt.host.domain import lookup
from saltvirt.host.provision import existing_disk, pool_disk, undo_disks
from saltvirt.host.provision.disk_build import (
    _PROBE_BYTES,
    DiskBuild,
    ImageSource,
    Progress,
    StorageLocation,
)
from saltvirt.host.storage import (
    deletion,
    files,
    filesystems,
    identity,
    overlays,
    unchanged_disks,
    usage,
    volume_content,
)
from saltvirt.images import chain, clone, confined, sources
from saltvirt.rights import confidential
from saltvirt.spec import profiles
from saltvirt.system import bounded_io, mount_guard
from saltvirt.units import human_bytes
from saltvirt.xml.devices.disk import Disk

if TYPE_CHECKING:
    import libvirt

    from saltvirt.host.provision.disk_journal import DiskJournal
    from saltvirt.host.storage.file_mark import Marks
    from saltvirt.host.storage.identity import Key
    from saltvirt.revert import UndoStack
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.spec.guest_spec import GuestSpec
    from saltvirt.xml.devices.disk_source import DiskSource


def _plan_file(
    conn: libvirt.virConnect,
    spec: DiskSpec,
    fallback: str,
    freed_locations: Collection[StorageLocation],
) -> DiskBuild:
    """Plan a disk with source_file outside a pool."""
    path = spec.source_file or ""
    if not bounded_io.lexists(bounded_io.real(path)) or files.real(path) in freed_locations:
        if spec.device != "disk" or not os.path.isdir(os.path.dirname(path)):
            raise errors.NotFound(f"disk {spec.name}: {path} does not exist on this host")
    elif not spec.image:
        return DiskBuild(spec, path=path, format=existing_disk.format_of(conn, spec, path))
    elif existing_disk.is_block(path):
        spec.size_bytes = None  # the device's size is fixed
        return DiskBuild(spec, make=True, path=path, format="raw")
    else:
        raise errors.AlreadyExists(
            f"disk {spec.name}: {path} already exists and image would overwrite it"
        )
    return DiskBuild(spec, make=True, path=path, format=_format(spec, fallback))


def _format(spec: DiskSpec, fallback: str) -> str:
    if spec.overlay_image:
        return "qcow2"
    return spec.format or ("raw" if spec.shareable else fallback)  # libvirt shares raw disks only


def _plan_in_folder(
    conn: libvirt.virConnect,
    spec: DiskSpec,
    guest: str,
    folder: str,
    fallback: str,
    freed_locations: Collection[StorageLocation],
) -> DiskBuild:
    format = _format(spec, fallback)
    path = os.path.join(folder, f"{guest}_{spec.name}.{format}")
    exists = bounded_io.lexists(path)
    if exists and files.real(path) in freed_locations:
        existing_disk.refuse_leftover(spec, guest, path)
        exists = False
    if exists and spec.existing:
        format_name = existing_disk.format_of(conn, replace(spec, format=format), path)
        return DiskBuild(spec, path=path, format=format_name)
    if exists:
        raise errors.AlreadyExists(
            f"disk {spec.name}: {path} already exists and is not overwritten: "
            f"{existing_disk.advice(conn, spec, guest, path)}"
        )
    return DiskBuild(spec, make=True, path=path, format=format)


def plan_disk(
    conn: libvirt.virConnect,
    spec: DiskSpec,
    guest: str,
    images_dir: str,
    virt_type: str,
    freed_locations: Collection[StorageLocation] = (),
) -> DiskBuild:
    """Return the DiskBuild for a DiskSpec; change nothing.

    images_dir: the default location, a folder or a pool. virt_type: kvm, qemu, xen, test, …
    freed_locations: disks that are removed before this one is created.
    """
    fallback = profiles.DISK_DEFAULTS.get(virt_type, {}).get("format", "raw")
    if spec.source or spec.empty:
        return DiskBuild(spec)
    if not (spec.pool or spec.source_file or images_dir.startswith("/")):
        spec.pool = images_dir
    if virt_type == "vmware" and not (spec.pool or spec.source_file):
        raise errors.InvalidInput(
            f"disk {spec.name}: VMware stores disks in datastores: set pool to the name "
            "of a datastore"
        )
    if spec.pool and not spec.pool.startswith("/"):
        format = _format(spec, fallback)
        xen = virt_type == "xen"
        volume_plan = pool_disk.plan(conn, spec, guest, format, xen, freed_locations)
        build = DiskBuild(spec, **volume_plan)
    elif spec.source_file:
        build = _plan_file(conn, spec, fallback, freed_locations)
    else:
        folder = spec.pool or images_dir
        build = _plan_in_folder(conn, spec, guest, folder, fallback, freed_locations)
    if build.make and not (spec.size_bytes or spec.image):
        if spec.source_file:
            pool_text = f"in pool {spec.pool}" if build.pool else "on this host"
            raise errors.NotFound(
                f"disk {spec.name}: {spec.source_file} does not exist {pool_text}; with a "
                "size it is created"
            )
        if spec.existing and build.path:
            raise errors.NotFound(
                f"disk {spec.name}: {build.path} does not exist on this host: give the format or "
                "the source of the disk"
            )
        raise errors.InvalidInput(f"disk {spec.name}: size is missing")
    if build.make and build.path:
        mount_guard.refuse_unmounted(os.path.dirname(build.path))
    base = spec.backing_store_path or ""
    if build.make and base.startswith("/"):
        volume_content.validate_base(conn, base, spec.backing_store_format)
    build.shared = _on_shared_storage(conn, build)
    return build


def _on_shared_storage(conn: libvirt.virConnect, build: DiskBuild) -> bool:
    """Return whether other hosts reach the disk's file system.

    If so, its guest can move there while running only if the disk does not use the host's cache.
    """
    folder = os.path.dirname(build.path or "")
    if build.pool and not build.path:
        pool = conn.storagePoolLookupByName(build.pool)
        folder = ElementTree.fromstring(pool.XMLDesc(0)).findtext("target/path") or ""
    if not folder.startswith("/") or not connection.is_local(conn):
        return False
    return filesystems.filesystem_of(filesystems.read(), folder).shared is not None


def plan(
    conn: libvirt.virConnect,
    spec: GuestSpec,
    images_dir: str,
    virt_type: str,
    freed_locations: Collection[StorageLocation] = (),
) -> list[DiskBuild]:
    """Return the DiskBuilds for the disks of a GuestSpec.

    freed_locations: as in plan_disk. Raises NotFound, AlreadyExists, InvalidInput.
    """
    options = (spec.name, images_dir, virt_type, freed_locations)
    builds = [plan_disk(conn, disk, *options) for disk in spec.disks or ()]
    paths = [build.path for build in builds if build.path]
    for path in paths:
        if paths.count(path) > 1:
            raise errors.InvalidInput(f"two disks have the same path, {path}")
    refuse_same_data(builds)
    return builds


def refuse_same_data(builds: Iterable[DiskBuild]) -> None:
    """Raise InvalidInput for two disks with the same file, device or volume.

    QEMU does not start such a guest, and without QEMU's locks the data would be lost.
    """
    used: dict[Key, str] = {}
    for build in builds:
        spec = build.spec
        if spec.removable or spec.shareable or spec.read_only:
            continue
        keys: set[Key] = set(identity.keys_of(build.path)) if build.path else set()
        if build.pool:
            keys.add(("volume", build.pool, build.volume or ""))
        for key in keys:
            if key in used:
                raise errors.InvalidInput(
                    f"the disks {used[key]} and {spec.name} would use the same data, "
                    f"{build.path or f'{build.pool}/{build.volume}'}"
                )
        used.update(dict.fromkeys(keys, spec.name or ""))


def check_image_size(build: DiskBuild) -> None:
    """Raise InvalidInput if the image is larger than the disk.

    A disk with a default size gets the size of its image.
    """
    size_bytes, image = build.spec.size_bytes, build.image
    if not size_bytes or not image or size_bytes >= image.virtual_size_bytes:
        return
    if build.spec.size_is_default:
        build.spec.size_bytes = None
    else:
        raise errors.InvalidInput(
            f"disk {build.spec.name}: its size {human_bytes(size_bytes)} is less than the "
            f"{human_bytes(image.virtual_size_bytes)} of its image; disks are never shrunk"
        )


def refuse_in_use(conn: libvirt.virConnect, builds: Collection[DiskBuild], guest: str) -> None:
    """Raise Refused if a writable disk is in use, or if a disk has a base that is written to."""
    _refuse_live_base(conn, builds)
    _refuse_based(conn, builds, guest)
    # an image overwrites the content of an existing block device
    existing = [b for b in builds if not b.make or (b.path and existing_disk.is_block(b.path))]
    existing = [b for b in existing if not b.spec.read_only]
    _refuse_other_users(conn, existing, guest)
    _refuse_base(conn, [b for b in existing if b.spec.shareable], guest)
    existing = [b for b in existing if not b.spec.shareable]
    _refuse_remote(conn, [b for b in existing if not b.spec.removable], guest)
    _refuse_needed(conn, existing, guest)


def _refuse_live_base(conn: libvirt.virConnect, builds: Iterable[DiskBuild]) -> None:
    """Raise Refused for a new disk whose source is written to.

    That is a backing file that any domain may write to, including this one, since each write would
    damage the disk; or a disk of a running domain to be copied, since devices do not reveal that
    they are in use.
    """
    new_disks = [(build, origin) for build in builds if (origin := _origin(build))]
    if not new_disks:
        return
    writers: dict[Key, libvirt.virDomain] = {}
    for dom in conn.listAllDomains():
        for tree in files.trees(dom):
            for path in files.writable(conn, tree):
                writers.update(dict.fromkeys(identity.keys_of(path), dom))
    for build, (path, format) in new_disks:
        # without a declared format the content is not trusted
        names = chain.names(path, format) if format else [path]
        keys = {key for name in names for key in identity.keys_of(name)}
        owner = next((writers[key] for key in keys if key in writers), None)
        if owner is not None:
            _refuse_origin(build, path, owner)


def _refuse_based(conn: libvirt.virConnect, builds: Iterable[DiskBuild], guest: str) -> None:
    """Raise Refused for an existing disk whose backing file another domain writes to.

    A disk that this guest writes to may be removed by the same update.
    """
    existing = [b for b in builds if not b.make and b.path and not b.spec.removable]
    base_keys = [(b, overlays.base_keys(b.path or "", b.format or "raw")) for b in existing]
    overlay_builds = [(build, keys) for build, keys in base_keys if keys]
    for dom in conn.listAllDomains() if overlay_builds else ():
        writers = overlays.written_paths(conn, dom) if dom.name() != guest else {}
        for build, keys in overlay_builds:
            base = next((writers[key] for key in keys if key in writers), None)
            if base:
                raise errors.Refused(
                    f"disk {build.spec.name}: {build.path} is based on {base}, a disk of "
                    f"{confidential.sensitive(dom.name())}, which writes to it: each write "
                    f"damages {build.path}; use a full copy instead (qemu-img convert)"
                )


def _refuse_origin(build: DiskBuild, path: str, owner: libvirt.virDomain) -> None:
    description = f"{path}, a disk of {confidential.sensitive(owner.name())}"
    if build.spec.overlay_image or not build.spec.image:
        raise errors.Refused(
            f"disk {build.spec.name} would be based on {description}, which writes to it: "
            "each write damages the disk; without overlay_image and backing_store_path "
            "the image is copied"
        )
    with connection.skip_undefined():
        if owner.isActive():
            raise errors.Refused(
                f"disk {build.spec.name} would be copied from {description}, which runs and "
                "writes to it: shut that guest down first"
            )


def _origin(build: DiskBuild) -> tuple[str, str | None] | None:
    """Return (path, format) of the file that a new disk will be based on or copied from.

    Returns None without one, for a cached image, and if the location is not known yet.
    """
    spec = build.spec
    if not build.make:
        return None
    if not spec.image:
        origin = spec.backing_store_path or "", spec.backing_store_format
    elif build.image and sources.kind(spec.image) in (sources.PATH, sources.POOL):
        origin = build.image.path, build.image.format
    else:
        origin = spec.image, None
    return origin if origin[0].startswith("/") else None


def _refuse_other_users(conn: libvirt.virConnect, builds: Iterable[DiskBuild], guest: str) -> None:
    """Raise Refused for a disk that another domain writes to, unless both share it."""
    local = {key: build for build in builds if build.path for key in identity.keys_of(build.path)}
    if not local:
        return
    for dom in conn.listAllDomains():
        for tree in files.trees(dom) if dom.name() != guest else ():
            for path in files.writable(conn, tree):
                build = next((local[key] for key in identity.keys_of(path) if key in local), None)
                if build:
                    hint = ", whose definition does not share it: make it shareable there first"
                    raise errors.Refused(
                        f"{path} is a disk of {confidential.sensitive(dom.name())}"
                        f"{hint if build.spec.shareable else ''}"
                    )


def _refuse_base(conn: libvirt.virConnect, builds: Iterable[DiskBuild], guest: str) -> None:
    """Raise Refused for a disk that is a backing file of another domain's disk."""
    for build, path in [(build, build.path) for build in builds if build.path]:
        overlay = overlays.overlay_on(conn, identity.keys_of(path), guest)
        if overlay:
            raise errors.Refused(
                f"disk {build.spec.name}: {overlay.path} of "
                f"{confidential.sensitive(overlay.guest)} is based on {path}: no guest "
                "may write to it"
            )


def _refuse_needed(conn: libvirt.virConnect, builds: Iterable[DiskBuild], guest: str) -> None:
    """Raise Refused for a disk that is read by others, is a backing file, or is used by the
    host."""
    writable = [(b, b.path) for b in builds if b.path and not b.spec.removable]
    if not writable:
        return
    domain = lookup.find(conn, guest)
    used = usage.read(conn, domain.UUIDString() if domain else None, images=False)
    for build, path in writable:
        keys = usage.keys_of(conn, path)
        users = used.users_of(keys)
        if users:
            raise errors.Refused(
                f"{path} is used by {confidential.sensitive_names(users)}: no guest may write to it"
            )
        if not build.make:
            continue
        reason = usage.read(conn, sibling_paths=[path]).keep_reason(keys)
        reason = reason or _kernel_use(path) or _nonblank_reason(conn, path)
        if reason:
            raise errors.Refused(f"cannot overwrite {path}: {reason}")


def _kernel_use(path: str) -> str | None:
    """Return why the kernel uses a device, as for a ZFS pool or an unmounted array; else None."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as exc:
        if exc.errno == errno.EBUSY:
            return f"this host itself uses it: lsblk {path} shows how"
    return None


def _nonblank_reason(conn: libvirt.virConnect, path: str) -> str | None:
    """Return why a device may hold data of another host, or None; other hosts are not asked
    here."""
    sharing_reason = usage.others_may_have(conn, path)
    if not sharing_reason:
        return None
    try:
        head = bounded_io.head(path, _PROBE_BYTES)
    except OSError as exc:
        return f"other hosts may use it ({sharing_reason}), and it cannot be read: {exc.strerror}"
    if not any(head or b""):
        return None
    return (
        f"other hosts may use it ({sharing_reason}), and it is not empty; if no guest "
        f"needs its content: dd if=/dev/zero of={path} bs=1M count=1"
    )


def _wipe(path: str) -> None:
    """Overwrite the beginning of a device that was blank."""
    with open(path, "r+b", buffering=0) as device:
        device.write(bytes(_PROBE_BYTES))
        os.fsync(device.fileno())


def _refuse_remote(conn: libvirt.virConnect, builds: Iterable[DiskBuild], guest: str) -> None:
    """Raise Refused for a disk on a server that another domain has."""
    sources = [build.source or Source.of_spec(build.spec) for build in builds]
    remote_names = {
        _remote_name(source.element()) for source in sources if source and source.server
    }
    if not remote_names:
        return
    for dom in conn.listAllDomains():
        for tree in files.trees(dom) if dom.name() != guest else ():
            for node in tree.iterfind("devices/disk"):
                remote_name = _remote_name(Disk(node).source)
                if remote_name in remote_names:
                    owner = confidential.sensitive(dom.name())
                    raise errors.Refused(f"{remote_name} is a disk of {owner}")


def _remote_name(source: DiskSource) -> str | None:
    """Return the identity of a disk on a server; Ceph monitors can be listed in many ways."""
    if source.protocol == "rbd":
        return f"rbd:{source.name}"
    return source.location() if source.protocol else None


def folder_bytes(builds: Iterable[DiskBuild]) -> list[tuple[str, int]]:
    """Return (path, bytes to reserve) of each file that will be created."""
    new_files = [(b.path, b.size_bytes or 0) for b in builds if b.make and b.path and not b.pool]
    return [(path, size) for path, size in new_files if not existing_disk.is_block(path)]


def pool_bytes(builds: Iterable[DiskBuild]) -> dict[str, int]:
    """Return {pool: bytes to reserve for new volumes}; 0 if only existing volumes are used."""
    bytes_by_pool: dict[str, int] = {}
    for build in builds:
        if build.pool:
            new_bytes = build.size_bytes or 0 if build.make else 0
            bytes_by_pool[build.pool] = bytes_by_pool.get(build.pool, 0) + new_bytes
    return bytes_by_pool


def _create_empty(build: DiskBuild, part: str) -> None:
    """Create an empty disk, possibly with a backing file of the operator."""
    argv = ["qemu-img", "create", "-q", "-f", build.format or "raw"]
    base, kind = build.spec.backing_store_path, build.spec.backing_store_format
    if base:
        argv += ["-b", base, "-F", kind or "raw"]
    if build.format == "raw" and build.spec.sparse_volume is False:
        argv += ["-o", "preallocation=falloc"]
    argv.append(part)
    if build.size_bytes:
        argv.append(str(build.size_bytes))
    reads = chain.names(base, kind) if base else ()
    confined.run(argv, f"create the disk {build.path}", reads=reads, writes=[part])


def _file(build: DiskBuild, progress: Progress | None, claim: Callable[[str], None] | None) -> None:
    """Create the file of a disk, from its image if it has one."""
    try:
        mount_guard.make_folder(os.path.dirname(build.file))
        if not build.image:
            clone.create_atomic(build.file, lambda part: _create_empty(build, part), claim)
    except OSError as exc:
        raise errors.ImageError(f"cannot create {build.path}: {exc.strerror}") from exc
    if build.image:
        clone.clone(
            build.image, build.file, build.format or "", size_bytes=build.size_bytes,
            overlay=bool(build.spec.overlay_image), progress=progress, claim=claim,
        )  # fmt: skip


@contextlib.contextmanager
def images_unchanged(builds: Iterable[DiskBuild]) -> Iterator[None]:
    """Keep the images of the DiskBuilds unchanged and cached within the block.

    QEMU cannot start to write to them. Raises OperationFailed if one was written to nevertheless.
    """
    sources = [build.image.path for build in builds if build.make and build.image]
    with unchanged_disks.UnchangedDisks(None, sources) as unchanged:
        yield
        unchanged.check()


def make(
    conn: libvirt.virConnect,
    build: DiskBuild,
    undo: UndoStack,
    progress: Progress | None = None,
    guest: str | None = None,
    note: DiskJournal | Marks | None = None,
) -> None:
    """Create one disk and push its deletion on the undo stack.

    guest: UUID of the domain that is already defined with the disk, if any. note: marks new files.
    Raises AlreadyExists if something else was created in its place; ImageError.
    """
    claim = note.mark if note else None
    if build.write:
        mount_guard.make_folder(os.path.dirname(build.file))
        exists = os.path.lexists(build.file)  # left over from a former guest with this name
        unused_block = deletion.ensure_unused(conn, build.file, guest, is_own=True)
        with unused_block if exists else contextlib.nullcontext():
            undo_disks.push(undo, conn, build.file, guest, exists=False)
            build.write(build.file)
            if claim:
                claim(build.file)
    elif build.pool:
        pool_disk.make(conn, build, undo, progress, guest, note)
    elif existing_disk.is_block(build.file):
        image = cast(ImageSource, build.image)  # only an image is written to a device
        # it was blank and must be so for the next attempt
        if usage.others_may_have(conn, build.file):
            undo.push(f"wipe {build.file}", _wipe, build.file)
        clone.clone(image, build.file, build.format or "", build.size_bytes, progress=progress)
    else:
        _file(build, progress, claim)
        undo_disks.push(undo, conn, build.file, guest)
