"""A new guest's disks: where each goes, and making it.

``plan`` decides and checks, and changes nothing. ``make`` does it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast
from xml.etree import ElementTree

from saltvirt import confidential, errors
from saltvirt.design.source import Source
from saltvirt.host import connection
from saltvirt.host.domain import lookup
from saltvirt.host.provision import existing_disk, pool_disk, undo_disks
from saltvirt.host.storage import (
    bounded,
    deletion,
    files,
    filesystems,
    identity,
    mounted,
    overlays,
    unchanged_disks,
    usage,
    volume_content,
)
from saltvirt.images import chain, clone, confined, sources
from saltvirt.spec import profiles
from saltvirt.units import human_bytes
from saltvirt.xml.disk import Disk

if TYPE_CHECKING:
    import libvirt

    from saltvirt.host.provision.disk_notes import Note
    from saltvirt.host.storage.file_mark import Marks
    from saltvirt.host.storage.identity import Key
    from saltvirt.revert import Revert
    from saltvirt.spec.disk import DiskSpec
    from saltvirt.spec.guest import GuestSpec
    from saltvirt.xml.disk_source import DiskSource

# of a device: what has neither a table of partitions nor a file system in it is blank
_BEGINS = 1024 * 1024
# the real path of a disk, or its (pool, volume)
Place = str | tuple[str, str]
# told how many bytes are done, and of how many; None where nobody knows
Progress = Callable[[int, "int | None"], object]


class Image(Protocol):
    """What a disk is made from: an image of the cache, or a disk that is copied."""

    @property
    def path(self) -> str:
        """Where it is on this host."""

    @property
    def format(self) -> str:
        """qcow2, raw, ..."""

    @property
    def virtual_size_bytes(self) -> int:
        """How large a disk it describes."""

    @property
    def files(self) -> tuple[str, ...]:
        """What it was found to be based on, beside what is in its own folder."""

    @property
    def source(self) -> str:
        """The address by which it was asked for."""

    @property
    def sha256(self) -> str | None:
        """Of its content; None where nobody asked."""


@dataclass
class Work:
    """One disk of the guest, and how it comes to be.

    spec: its DiskSpec. make: whether it has to be made; what is not made is used as it is
    and never deleted. format: raw, qcow2, … or None where QEMU has no say. path: where the
    disk is (None for one in a pool that is not made yet, or on a server). image: a
    CachedImage, once it was fetched. write: what fills it instead, called with the path.
    direct: the Source that names a pool's volume for guests that cannot name the pool. shared:
    whether its folder is on a file system that other hosts reach, too.
    """

    spec: DiskSpec
    make: bool = False
    format: str | None = None
    path: str | None = None
    pool: str | None = None
    volume: str | None = None
    image: Image | None = None
    write: Callable[[str], object] | None = None
    direct: Source | None = None
    shared: bool = False

    @property
    def source(self) -> Source | None:
        """Where its data is, for the domain's definition; None where the spec says it all."""
        if self.direct:
            found = replace(self.direct, pool=self.pool, volume=self.volume)
        elif self.pool:
            found = Source(pool=self.pool, volume=self.volume)
        elif self.path:
            found = Source(path=self.path, block=existing_disk.is_block(self.path))
        else:
            return None
        cache = "none" if self.shared else None
        return replace(found, format=self.format, made=self.make, cache=cache)

    @property
    def file(self) -> str:
        """The path of one that is in no pool or is made by now. Raises OperationFailed."""
        if not self.path:
            raise errors.OperationFailed(f"disk {self.spec.name} has no path")
        return self.path

    @property
    def size_bytes(self) -> int | None:
        """How large it will be: what was asked for, else the image's own size."""
        return self.spec.size_bytes or (self.image.virtual_size_bytes if self.image else None)


def _given(
    conn: libvirt.virConnect, spec: DiskSpec, fallback: str, gone: Collection[Place]
) -> Work:
    """A disk with source_file and no pool."""
    path = spec.source_file or ""
    if not bounded.lexists(bounded.real(path)) or files.real(path) in gone:
        if spec.device != "disk" or not os.path.isdir(os.path.dirname(path)):
            raise errors.NotFound(f"disk {spec.name}: {path} does not exist on this host")
    elif not spec.image:
        return Work(spec, path=path, format=existing_disk.format_of(conn, spec, path))
    elif existing_disk.is_block(path):
        spec.size_bytes = None  # it has its size, whatever a profile says
        return Work(spec, make=True, path=path, format="raw")
    else:
        raise errors.AlreadyExists(
            f"disk {spec.name}: {path} exists already and image would overwrite it"
        )
    return Work(spec, make=True, path=path, format=_format(spec, fallback))


def _format(spec: DiskSpec, fallback: str) -> str:
    if spec.overlay_image:
        return "qcow2"
    return spec.format or ("raw" if spec.shareable else fallback)  # libvirt shares no other


def _in_folder(
    conn: libvirt.virConnect,
    spec: DiskSpec,
    guest: str,
    folder: str,
    fallback: str,
    gone: Collection[Place],
) -> Work:
    format = _format(spec, fallback)
    path = os.path.join(folder, f"{guest}_{spec.name}.{format}")
    there = bounded.lexists(path)
    if there and files.real(path) in gone:
        existing_disk.refuse_leftover(spec, guest, path)
        there = False
    if there and spec.existing:
        known = existing_disk.format_of(conn, replace(spec, format=format), path)
        return Work(spec, path=path, format=known)
    if there:
        raise errors.AlreadyExists(
            f"disk {spec.name}: {path} exists already and is left as it is: "
            f"{existing_disk.advice(conn, spec, guest, path)}"
        )
    return Work(spec, make=True, path=path, format=format)


def plan_one(
    conn: libvirt.virConnect,
    spec: DiskSpec,
    guest: str,
    images_dir: str,
    virt_type: str,
    gone: Collection[Place] = (),
) -> Work:
    """The Work for one DiskSpec; changes nothing.

    images_dir: where disks go of which nobody said it: a folder, or a storage pool.
    virt_type: kvm, qemu, xen, test… gone: what is removed before the disk is made.
    """
    fallback = profiles.DISK_DEFAULTS.get(virt_type, {}).get("format", "raw")
    if spec.source or spec.empty:
        return Work(spec)
    if not (spec.pool or spec.source_file or images_dir.startswith("/")):
        spec.pool = images_dir
    if virt_type == "vmware" and not (spec.pool or spec.source_file):
        raise errors.InvalidInput(
            f"disk {spec.name}: VMware has its disks in datastores: name one as pool"
        )
    if spec.pool and not spec.pool.startswith("/"):
        format = _format(spec, fallback)
        found = Work(spec, **pool_disk.plan(conn, spec, guest, format, virt_type == "xen", gone))
    elif spec.source_file:
        found = _given(conn, spec, fallback, gone)
    else:
        found = _in_folder(conn, spec, guest, spec.pool or images_dir, fallback, gone)
    if found.make and not (spec.size_bytes or spec.image):
        if spec.source_file:
            where = f"in pool {spec.pool}" if found.pool else "on this host"
            raise errors.NotFound(
                f"disk {spec.name}: {spec.source_file} does not exist {where}; a size makes it"
            )
        raise errors.InvalidInput(f"disk {spec.name}: size is missing")
    if found.make and found.path:
        mounted.refuse_unmounted(os.path.dirname(found.path))
    base = spec.backing_store_path or ""
    if found.make and base.startswith("/"):
        volume_content.sound_base(conn, base, spec.backing_store_format)
    found.shared = _on_shared_storage(conn, found)
    return found


def _on_shared_storage(conn: libvirt.virConnect, work: Work) -> bool:
    """Whether a disk is below a file system that other hosts reach. Only without the host's cache
    can its guest move to one of them while it runs."""
    folder = os.path.dirname(work.path or "")
    if work.pool and not work.path:
        pool = conn.storagePoolLookupByName(work.pool)
        folder = ElementTree.fromstring(pool.XMLDesc(0)).findtext("target/path") or ""
    if not folder.startswith("/") or not connection.is_local(conn):
        return False
    return filesystems.of(filesystems.read(), folder).shared is not None


def plan(
    conn: libvirt.virConnect,
    spec: GuestSpec,
    images_dir: str,
    virt_type: str,
    gone: Collection[Place] = (),
) -> list[Work]:
    """The Works for a GuestSpec's disks; gone: as for plan_one. Raises NotFound, AlreadyExists,
    InvalidInput."""
    works = [
        plan_one(conn, disk, spec.name, images_dir, virt_type, gone) for disk in spec.disks or ()
    ]
    places = [work.path for work in works if work.path]
    for place in places:
        if places.count(place) > 1:
            raise errors.InvalidInput(f"two disks have the same place, {place}")
    refuse_same_data(works)
    return works


def refuse_same_data(works: Iterable[Work]) -> None:
    """Raises InvalidInput for two disks with one file, device or volume, by whatever names: QEMU
    does not start such a guest, and without its locks the data would be lost."""
    used: dict[Key, str] = {}
    for work in works:
        spec = work.spec
        if spec.removable or spec.shareable or spec.read_only:
            continue
        keys: set[Key] = set(identity.of(work.path)) if work.path else set()
        if work.pool:
            keys.add(("volume", work.pool, work.volume or ""))
        for key in keys:
            if key in used:
                raise errors.InvalidInput(
                    f"the disks {used[key]} and {spec.name} would be the same data, "
                    f"{work.path or f'{work.pool}/{work.volume}'}"
                )
        used.update(dict.fromkeys(keys, spec.name or ""))


def fits(work: Work) -> None:
    """Raises InvalidInput when the image is larger than the disk it is for.

    A disk of which nobody said a size is as large as its image then.
    """
    wanted, image = work.spec.size_bytes, work.image
    if not wanted or not image or wanted >= image.virtual_size_bytes:
        return
    if work.spec.size_is_default:
        work.spec.size_bytes = None
    else:
        raise errors.InvalidInput(
            f"disk {work.spec.name}: its size {human_bytes(wanted)} is less than the "
            f"{human_bytes(image.virtual_size_bytes)} of its image; a disk is never shrunk"
        )


def not_in_use(conn: libvirt.virConnect, works: Collection[Work], guest: str) -> None:
    """Raises Refused when another domain uses a disk that this one would write to, and for a disk
    that is based on one that a domain writes to, or is to be made so."""
    _not_written(conn, works)
    _not_based(conn, works, guest)
    # an image goes onto a block device that is there, over what it holds
    there = [w for w in works if not w.make or (w.path and existing_disk.is_block(w.path))]
    there = [w for w in there if not w.spec.read_only]
    _not_of_others(conn, there, guest)
    _not_a_base(conn, [w for w in there if w.spec.shareable], guest)
    there = [w for w in there if not w.spec.shareable]
    _not_far(conn, [w for w in there if not w.spec.removable], guest)
    _not_needed(conn, there, guest)


def _not_written(conn: libvirt.virConnect, works: Iterable[Work]) -> None:
    """Raises Refused for a new disk that would be based on one to which a domain writes, this one
    included: what is written to it damages all that is on top of it. And for one that would be
    copied of a domain's that runs: a device does not tell that it is in use."""
    made = [(work, origin) for work in works if (origin := _origin(work))]
    if not made:
        return
    written: dict[Key, libvirt.virDomain] = {}
    for dom in conn.listAllDomains():
        for tree in files.trees(dom):
            for path in files.writable(conn, tree):
                written.update(dict.fromkeys(identity.of(path), dom))
    for work, (path, format) in made:
        # without a format that is declared, what the content says is not believed
        names = chain.names(path, format) if format else [path]
        keys = {key for name in names for key in identity.of(name)}
        owner = next((written[key] for key in keys if key in written), None)
        if owner is not None:
            _refuse_origin(work, path, owner)


def _not_based(conn: libvirt.virConnect, works: Iterable[Work], guest: str) -> None:
    """Raises Refused for a disk that is there and is based on one to which another domain writes.
    What the guest itself writes to may leave it by the same update."""
    there = [w for w in works if not w.make and w.path and not w.spec.removable]
    based = [(w, keys) for w in there if (keys := overlays.bases(w.path or "", w.format or "raw"))]
    for dom in conn.listAllDomains() if based else ():
        written = overlays.written(conn, dom) if dom.name() != guest else {}
        for work, keys in based:
            base = next((written[key] for key in keys if key in written), None)
            if base:
                raise errors.Refused(
                    f"disk {work.spec.name}: {work.path} is based on {base}, a disk of "
                    f"{confidential.part(dom.name())}, which writes to it: each write damages what "
                    "is based on it; a whole copy (qemu-img convert) can be used"
                )


def _refuse_origin(work: Work, path: str, owner: libvirt.virDomain) -> None:
    words = f"{path}, a disk of {confidential.part(owner.name())}"
    if work.spec.overlay_image or not work.spec.image:
        raise errors.Refused(
            f"disk {work.spec.name} would be based on {words}, which writes to it: each write "
            "damages what is based on it; without overlay_image and backing_store_path the image "
            "is copied"
        )
    with connection.unless_gone():
        if owner.isActive():
            raise errors.Refused(
                f"disk {work.spec.name} would be copied of {words}, which runs and writes to it: "
                "shut that guest down first"
            )


def _origin(work: Work) -> tuple[str, str | None] | None:
    """(path, format) of what a disk that is to be made will be based on, or copied of; None without
    one, for an image of the cache, and for one whose place is not known yet."""
    spec = work.spec
    if not work.make:
        return None
    if not spec.image:
        found = spec.backing_store_path or "", spec.backing_store_format
    elif work.image and sources.kind(spec.image) in (sources.PATH, sources.POOL):
        found = work.image.path, work.image.format
    else:
        found = spec.image, None
    return found if found[0].startswith("/") else None


def _not_of_others(conn: libvirt.virConnect, works: Iterable[Work], guest: str) -> None:
    """Raises Refused for a disk to which another domain writes, by whatever name; only if both
    share it may both."""
    local = {key: work for work in works if work.path for key in identity.of(work.path)}
    if not local:
        return
    for dom in conn.listAllDomains():
        for tree in files.trees(dom) if dom.name() != guest else ():
            for path in files.writable(conn, tree):
                work = next((local[key] for key in identity.of(path) if key in local), None)
                if work:
                    more = ", which does not share it: make it shareable there first"
                    raise errors.Refused(
                        f"{path} is a disk of {confidential.part(dom.name())}"
                        f"{more if work.spec.shareable else ''}"
                    )


def _not_a_base(conn: libvirt.virConnect, works: Iterable[Work], guest: str) -> None:
    """Raises Refused for a disk on which the disk of another domain is based: that cannot be
    shared."""
    for work in works:
        above = overlays.above(conn, identity.of(work.path), guest) if work.path else None
        if above:
            raise errors.Refused(
                f"disk {work.spec.name}: {above.path} of {confidential.part(above.guest)} is based "
                f"on {work.path}: no guest writes to it"
            )


def _not_needed(conn: libvirt.virConnect, works: Iterable[Work], guest: str) -> None:
    """The same for what others only read or are based on, and for what this host itself uses."""
    written = [(w, w.path) for w in works if w.path and not w.spec.removable]
    if not written:
        return
    here = lookup.find(conn, guest)
    used = usage.read(conn, here.UUIDString() if here else None, images=False)
    for work, path in written:
        users = used.of(usage.keys_of(conn, path))
        if users:
            raise errors.Refused(
                f"{path} is used by {confidential.listed(users)}: no guest writes to it"
            )
        why = work.make and usage.read(conn, beside=[path]).why(usage.keys_of(conn, path))
        why = why or (work.make and (_held(path) or _not_blank(conn, path)))
        if why:
            raise errors.Refused(f"{path} is not overwritten: {why}")


def _held(path: str) -> str | None:
    """Why a device is this host's own, in words: its kernel has it, as for a ZFS pool or an array
    that is mounted nowhere; None otherwise."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as exc:
        if exc.errno == errno.EBUSY:
            return f"this host itself uses it: lsblk {path} shows for what"
    return None


def _not_blank(conn: libvirt.virConnect, path: str) -> str | None:
    """Why what is on a device may be another host's, in words: none of them is asked here."""
    others = usage.others_may_have(conn, path)
    if not others:
        return None
    try:
        begins = bounded.head(path, _BEGINS)
    except OSError as exc:
        return f"other hosts may have it ({others}), and it cannot be read: {exc.strerror}"
    if not any(begins or b""):
        return None
    return (
        f"other hosts may have it ({others}), and there is something on it; where no guest needs "
        f"that: dd if=/dev/zero of={path} bs=1M count=1"
    )


def _blank(path: str) -> None:
    """Makes a device that was blank look so again."""
    with open(path, "r+b", buffering=0) as device:
        device.write(bytes(_BEGINS))
        os.fsync(device.fileno())


def _not_far(conn: libvirt.virConnect, works: Iterable[Work], guest: str) -> None:
    """The same for disks on a server."""
    sources = [work.source or Source.of_spec(work.spec) for work in works]
    wanted = {_far(source.element()) for source in sources if source and source.protocol}
    if not wanted:
        return
    for dom in conn.listAllDomains():
        for tree in files.trees(dom) if dom.name() != guest else ():
            for node in tree.iterfind("devices/disk"):
                place = _far(Disk(node).source)
                if place in wanted:
                    raise errors.Refused(f"{place} is a disk of {confidential.part(dom.name())}")


def _far(source: DiskSource) -> str | None:
    """What a disk on a server is known by; the monitors of Ceph may be named in many ways."""
    if source.protocol == "rbd":
        return f"rbd:{source.name}"
    return source.place() if source.protocol else None


def folder_bytes(works: Iterable[Work]) -> list[tuple[str, int]]:
    """(path, bytes that it promises) of each file that is to be made."""
    return [
        (w.path, w.size_bytes or 0)
        for w in works
        if w.make and w.path and not w.pool and not existing_disk.is_block(w.path)
    ]


def pool_bytes(works: Iterable[Work]) -> dict[str, int]:
    """{storage pool: the bytes that the volumes to be made in it promise}; 0 for one of which
    only a volume that is there is used."""
    found: dict[str, int] = {}
    for work in works:
        if work.pool:
            found[work.pool] = found.get(work.pool, 0) + (work.size_bytes or 0) * work.make
    return found


def _empty(work: Work, part: str) -> None:
    """A new disk without an image, perhaps on a backing file of the operator's."""
    argv = ["qemu-img", "create", "-q", "-f", work.format or "raw"]
    base, kind = work.spec.backing_store_path, work.spec.backing_store_format
    if base:
        argv += ["-b", base, "-F", kind or "raw"]
    if work.format == "raw" and work.spec.sparse_volume is False:
        argv += ["-o", "preallocation=falloc"]
    argv.append(part)
    if work.size_bytes:
        argv.append(str(work.size_bytes))
    reads = chain.names(base, kind) if base else ()
    confined.run(argv, f"make the disk {work.path}", reads=reads, writes=[part])


def _file(work: Work, progress: Progress | None, claim: Callable[[str], None] | None) -> None:
    """Makes the file of a disk, from its image if there is one."""
    try:
        mounted.make_folder(os.path.dirname(work.file))
        if not work.image:
            clone.whole(work.file, lambda part: _empty(work, part), claim)
    except OSError as exc:
        raise errors.ImageError(f"cannot make {work.path}: {exc.strerror}") from exc
    if work.image:
        clone.clone(
            work.image, work.file, work.format or "", size_bytes=work.size_bytes,
            overlay=bool(work.spec.overlay_image), progress=progress, claim=claim,
        )  # fmt: skip


@contextlib.contextmanager
def images_unchanged(works: Iterable[Work]) -> Iterator[None]:
    """For the block, which makes the Works, no QEMU begins to write to their images, such as the
    disk of a guest that is off, and no image is pruned. Raises OperationFailed where one was
    written to all the same."""
    sources = [work.image.path for work in works if work.make and work.image]
    with unchanged_disks.Unchanged(None, sources) as unchanged:
        yield
        unchanged.check()


def make(
    conn: libvirt.virConnect,
    work: Work,
    undo: Revert,
    progress: Progress | None = None,
    guest: str | None = None,
    note: Note | Marks | None = None,
) -> None:
    """Makes one disk; pushes its deletion on the revert stack. guest: UUID of the domain that it is
    made for, where it is defined with it by now. note: marks what is made.

    Raises AlreadyExists when something took its place meanwhile, ImageError.
    """
    claim = note.mark if note else None
    if work.write:
        mounted.make_folder(os.path.dirname(work.file))
        there = os.path.lexists(work.file)  # of a guest of that name, which is gone
        free = deletion.unused(conn, work.file, guest, ours=True)
        with free if there else contextlib.nullcontext():
            undo_disks.push(undo, conn, work.file, guest, made=False)
            work.write(work.file)
            if claim:
                claim(work.file)
    elif work.pool:
        pool_disk.make(conn, work, undo, progress, guest, note)
    elif existing_disk.is_block(work.file):
        image = cast(Image, work.image)  # a device gets nothing but an image's content
        if usage.others_may_have(conn, work.file):  # it was blank, and has to be the next time
            undo.push(f"take the image from {work.file}", _blank, work.file)
        clone.clone(image, work.file, work.format or "", work.size_bytes, progress=progress)
    else:
        _file(work, progress, claim)
        undo_disks.push(undo, conn, work.file, guest)
