"""This host's image cache: each version of an image is downloaded once, for any number of guests.

Layout of ``<virt:images>/_base``::

    debian-0123456789abcdef.qcow2   an image, named by its content, never changed
    .index/<address>.json           the version of an address when it was fetched
    .meta/<file>.json               the note of a file
    .partial/  .locks/              downloads in progress

A new version of an address is a new file, so overlays of the old one remain valid.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saltvirt import errors
from saltvirt.images import checksum, free_space, header, inspect, sources, storage, web
from saltvirt.migration.storage import incoming_path
from saltvirt.schema import Message, transient
from saltvirt.system import atomic_file, bounded_io, file_lock, mount_guard
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from saltvirt.images.checksum import RequiredHash
    from saltvirt.images.sources import Client, Progress, SaltFiles, Version

DEFAULT_DIR = "/srv/salt-images"
BASE = "_base"
# the format of a CD image in the cache
ISO = "iso"
# for this time an interrupted download can be continued
PARTIAL_LIFETIME_S = 7 * 24 * 3600
_KEY = re.compile("[0-9a-f]{40}")
_MAX_NOTE_BYTES = 1024**2


@dataclass(frozen=True)
class CachedImage:
    """An image on this host. ``sha256`` is None for an operator's own file that is used in place,
    unless its hash was requested."""

    path: str
    format: str
    virtual_size_bytes: int
    sha256: str | None
    source: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageNote(Message):
    """The note of a file in the cache.

    file: its name; path: its path, which is not stored. sums: hashes of its content by algorithm.
    source: its address for display. fetched: in seconds since 1970.
    """

    file: str
    format: str
    size_bytes: int
    sums: dict[str, str]
    source: str
    fetched: float
    path: str = transient("")


@dataclass(frozen=True)
class ImageFile:
    """An image that is on this host. format: the declared format, or None to detect it."""

    path: str
    format: str | None = None


def _nothing(_done: int, _total: int | None) -> None:
    """The default progress callback."""


@dataclass(frozen=True)
class _ImageRequest:
    """A request for an image. required: its (algorithm, digits), or None. cdrom: it is for a CD
    drive."""

    source: str
    client: Client
    required: RequiredHash | None
    progress: Progress
    cdrom: bool = False


def folder(images_dir: str) -> str:
    """The folder of cached images below ``virt:images``."""
    return os.path.join(os.path.abspath(images_dir), BASE)


class _Folder:
    """The files of one cache."""

    def __init__(self, images_dir: str) -> None:
        self.base = folder(images_dir)

    def path(self, *parts: str) -> str:
        return os.path.join(self.base, *parts)

    def make(self) -> None:
        mount_guard.make_folder(self.base, 0o755)
        for name in (".index", ".meta", ".partial", ".locks"):
            os.makedirs(self.path(name), mode=0o700, exist_ok=True)

    def read(self, *parts: str) -> Any:
        try:
            return json.loads(bounded_io.head(self.path(*parts), _MAX_NOTE_BYTES) or b"")
        except (FileNotFoundError, ValueError):
            return None

    def write(self, data: Any, *parts: str) -> None:
        """Write a JSON file. Two addresses with the same content may be recorded at the same time,
        so the file is replaced atomically."""
        target = self.path(*parts)
        with file_lock.exclusive(self.path(".locks", "write")):
            atomic_file.write(target, json.dumps(data).encode(), durable=False)


def key(source: str) -> str:
    """The name under which an address is stored."""
    return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:40]


def _required_hash(
    image_hash: object, source: str, download: SaltFiles | None
) -> RequiredHash | None:
    """(algorithm, digits) that the operator requires of the image, or None."""
    if not image_hash:
        return None
    image_hash = str(image_hash)
    if checksum.is_value(image_hash):
        return checksum.parse(image_hash)
    try:
        source_kind = sources.kind(image_hash)
    except errors.InvalidInput:
        return checksum.parse(image_hash)  # which says what is wrong with it
    if source_kind == sources.WEB:
        text = web.read_list(image_hash)
    elif source_kind == sources.SALT:
        text = _master(image_hash, download).read(image_hash)
    else:
        text = _read_list(image_hash)
    return checksum.from_list(text, sources.name(source), sources.shown(image_hash))


def _master(source: str, download: SaltFiles | None) -> SaltFiles:
    if download is None:
        raise errors.InvalidInput(f"image {source} cannot be fetched without a master")
    return download


def _client(source: str, download: SaltFiles | None) -> Client:
    """The client that fetches from an address."""
    salt = sources.kind(source) == sources.SALT
    return _master(source, download) if salt else web.client(source)


def _read_list(path: str) -> str:
    try:
        with storage.open_for_reading(path) as file:
            data = file.read(sources.MAX_LIST_BYTES + 1)
    except OSError as exc:
        reason = exc.strerror or exc
        raise errors.ImageError(f"cannot read the list of hashes {path}: {reason}") from exc
    sources.check_list_size(len(data))
    return data.decode("utf-8", "replace")


def _verify(
    path: str, source: str, required: RequiredHash | None, algorithms: Iterable[str] = ()
) -> dict[str, str]:
    """The file's hashes. Raises ImageError if the required one differs."""
    needed = {*algorithms, *([required[0]] if required else [])}
    sums = checksum.hash_file(path, needed)
    if required and sums[required[0]] != required[1]:
        raise errors.ImageError(
            f"image {sources.shown(source)} has the {required[0]} {sums[required[0]]} "
            f"instead of {required[1]}"
        )
    return sums


def _not_empty(info: inspect.ImageInfo, shown: str) -> None:
    if not info.virtual_size_bytes:
        raise errors.ImageError(f"{shown} is not a disk image: its disk has no size")


def _local(
    source: str, local_file: ImageFile, required: RequiredHash | None, cdrom: bool = False
) -> CachedImage:
    """The CachedImage of a file or device on this host, which is used in place. cdrom: a CD image
    is allowed."""
    if os.path.exists(incoming_path(os.path.abspath(local_file.path))):
        raise errors.ImageError(
            f"{local_file.path} is being copied to this host by a migration: try again later"
        )
    if cdrom and header.is_cd(local_file.path):
        info = _inspect_cd(local_file.path)
    else:
        info = inspect.inspect(local_file.path, local_file.format)
    _not_empty(info, local_file.path)
    if required and os.path.getsize(local_file.path) > free_space.MAX_BYTES:
        raise errors.ImageError(
            f"{local_file.path} is larger than {human_bytes(free_space.MAX_BYTES)}, so its "
            "hash is not computed"
        )
    sums = _verify(local_file.path, source, required, ["sha256"]) if required else {}
    return CachedImage(info.path, info.format, info.virtual_size_bytes, sums.get("sha256"), source)


def _note(folder: _Folder, name: str) -> ImageNote | None:
    """The note of a file in the cache, or None if the file is incomplete."""
    path = folder.path(name)
    try:
        note = ImageNote.from_answer(folder.read(".meta", name + ".json"), path)
    except errors.BadAnswer:
        return None
    return replace(note, path=path) if bounded_io.is_file(path) else None


def _cached(
    folder: _Folder, request: _ImageRequest, version: Version, touch: bool = True
) -> CachedImage | None:
    """The CachedImage of exactly this version, or None. touch: record its use."""
    index = folder.read(".index", key(request.source) + ".json")
    if not index or index["version"] != version:
        return None
    note = _note(folder, index["file"])
    if not note or (request.required and note.sums.get(request.required[0]) != request.required[1]):
        return None
    if touch:
        os.utime(folder.path(".meta", index["file"] + ".json"))
    return _image(note, request.source)


def _by_hash(folder: _Folder, request: _ImageRequest, touch: bool = True) -> CachedImage | None:
    """The CachedImage of this address with the required hash, without asking its server."""
    index = folder.read(".index", key(request.source) + ".json")
    return _cached(folder, request, index["version"], touch) if index and request.required else None


def _image(note: ImageNote, source: str) -> CachedImage:
    return CachedImage(note.path, note.format, note.size_bytes, note.sums["sha256"], source)


def _inspect_cd(path: str) -> inspect.ImageInfo:
    """The ImageInfo of a CD image."""
    return replace(inspect.inspect(path, "raw"), format=ISO)


def _inspect_part(part: str, shown: str, cdrom: bool) -> inspect.ImageInfo:
    """The ImageInfo of a downloaded file. cdrom: a CD image is allowed. Errors name the
    address, which the user knows, instead of the file."""
    if cdrom and header.is_cd(part):
        return _inspect_cd(part)
    try:
        head = header.read(part)
        if head.backing or head.data_file:
            raise errors.ImageError(
                f"{part} refers to another file, {head.backing or head.data_file!r}: merge "
                "them with qemu-img convert"
            )
        info = inspect.inspect(part)
        _not_empty(info, part)
        inspect.check(info.path, info.format)
    except errors.ImageError as exc:
        raise errors.ImageError(exc.text.replace(str(part), shown)) from exc
    return info


def _admit(folder: _Folder, part: str, request: _ImageRequest, version: Version) -> CachedImage:
    """Check a downloaded file and give it its name in the cache."""
    source = request.source
    server_algorithm = version.get("hash_type")
    algorithms = {"sha256", "sha512"}
    if server_algorithm and server_algorithm in hashlib.algorithms_available:
        algorithms.add(server_algorithm)
    sums = _verify(part, source, request.required, algorithms)
    if server_algorithm in sums and sums[server_algorithm] != version["hsum"]:
        raise errors.ImageError(f"{sources.shown(source)} changed during the download: try again")
    info = _inspect_part(part, sources.shown(source), request.cdrom)
    name = f"{sources.stem(source)}-{sums['sha256'][:16]}.{info.format}"
    os.chmod(part, 0o444)
    atomic_file.sync(part)
    note = ImageNote(
        file=name,
        format=info.format,
        size_bytes=info.virtual_size_bytes,
        sums=sums,
        source=sources.shown(source),
        fetched=time.time(),
        path=folder.path(name),
    )
    # a process that is killed in between leaves a note without an image, but no image without a
    # note
    folder.write(note.to_answer(), ".meta", name + ".json")
    atomic_file.rename(part, note.path, durable=False)
    folder.write({"version": version, "file": name}, ".index", key(source) + ".json")
    return _image(note, source)


def _download(folder: _Folder, request: _ImageRequest, version: Version) -> CachedImage:
    part = folder.path(".partial", key(request.source))
    web.write_part_note(part, version)
    limit = free_space.SpaceGuard(f"image {sources.shown(request.source)}", folder.base)

    def progress(done: int, total: int | None) -> None:
        limit.check(done, total)
        request.progress(done, total)

    try:
        version = request.client.fetch(request.source, part, version, progress)
    except (errors.Refused, OSError) as exc:
        if isinstance(exc, errors.Refused) or free_space.is_full(exc):
            web.forget(part)  # the partial file would use space that others need
        raise
    try:
        return _admit(folder, part, request, version)
    finally:
        web.forget(part)


def _size(path: str) -> int | None:
    """The size of a download in progress, or None."""
    try:
        return os.path.getsize(path)
    except OSError:
        return None


def _shared(folder: _Folder, request: _ImageRequest) -> CachedImage:
    """The cached image, or else download it. One process downloads while others wait."""
    part = folder.path(".partial", key(request.source))

    def watch_progress() -> int | None:
        """The progress of the downloading process, also reported for this one."""
        size = _size(part)
        if size:
            request.progress(size, None)
        return size

    with file_lock.exclusive(folder.path(".locks", key(request.source)), progress=watch_progress):
        image = _by_hash(folder, request)
        if image:
            return image
        version = request.client.version(request.source)
        return _cached(folder, request, version) or _download(folder, request, version)


def fetch(
    source: str,
    cache_dir: str = DEFAULT_DIR,
    download: SaltFiles | None = None,
    image_hash: object = None,
    *,
    progress: Progress | None = None,
    local_file: ImageFile | None = None,
    cdrom: bool = False,
) -> CachedImage:
    """The CachedImage of an image's address, which is downloaded if this host does not have it.

    source: ``salt://…`` (``?saltenv=…`` as in Salt), an absolute path, ``http(s)://…`` or
    ``ftp://…``. cache_dir: the host's ``virt:images``. download: a sources.SaltFiles, for
    ``salt://``. image_hash: the required hash (see checksum), or the address of a file that lists
    it. progress: called with (done, total) in bytes. local_file: the ImageFile of an image on this
    host; default: for an absolute path. cdrom: for a CD drive: a CD image is allowed.

    A file on the host is used in place. If several processes request an image, one of them
    downloads it and the others wait. Raises InvalidInput, NotFound, ImageError.
    """
    source_kind = sources.kind(source)
    try:
        required = _required_hash(image_hash, source, download)
        if local_file or source_kind == sources.PATH:
            return _local(source, local_file or ImageFile(source), required, cdrom)
        if source_kind == sources.POOL:
            raise errors.InvalidInput(f"image {source}: a volume of a pool cannot be used here")
        folder = _Folder(cache_dir)
        folder.make()
        client = _client(source, download)
        request = _ImageRequest(source, client, required, progress or _nothing, cdrom)
        return _usable(_shared(folder, request), request)
    except OSError as exc:
        kind = errors.Refused if free_space.is_full(exc) else errors.ImageError
        shown, reason = sources.shown(source), exc.strerror or exc
        raise kind(f"cannot fetch {shown} to {cache_dir}: {reason}") from exc


def find_local(
    source: str,
    cache_dir: str = DEFAULT_DIR,
    download: SaltFiles | None = None,
    image_hash: object = None,
    local_file: ImageFile | None = None,
    cdrom: bool = False,
) -> CachedImage | None:
    """The CachedImage that :func:`fetch` would return without a download, or None. Writes nothing.

    Raises InvalidInput, NotFound, ImageError.
    """
    source_kind = sources.kind(source)
    with _translate_errors(source):
        required = _required_hash(image_hash, source, download)
        if local_file or source_kind == sources.PATH:
            return _local(source, local_file or ImageFile(source), required, cdrom)
        folder = _Folder(cache_dir)
        client = _client(source, download)
        request = _ImageRequest(source, client, required, _nothing, cdrom)
        image = _by_hash(folder, request, touch=False)
        image = image or _cached(folder, request, client.version(source), touch=False)
        return image and _usable(image, request)


def _usable(image: CachedImage, request: _ImageRequest) -> CachedImage:
    """Return the image. Raises ImageError for a CD image that a disk is to be created from."""
    if image.format == ISO and not request.cdrom:
        raise errors.ImageError(
            f"{sources.shown(request.source)} is a CD image, not a disk image: attach it as a cdrom"
        )
    return image


@contextlib.contextmanager
def _translate_errors(source: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        shown, reason = sources.shown(source), exc.strerror or exc
        raise errors.ImageError(f"cannot read {shown}: {reason}") from exc


def cached_size_bytes(
    source: str, cache_dir: str = DEFAULT_DIR, local_file: ImageFile | None = None
) -> int | None:
    """The virtual size of an image that is already on this host, or None.

    local_file: as for :func:`fetch`. Does not ask whether the image is the latest version. Raises
    InvalidInput, NotFound, ImageError.
    """
    with _translate_errors(source):
        if local_file or sources.kind(source) == sources.PATH:
            return _local(source, local_file or ImageFile(source), None).virtual_size_bytes
        store = _Folder(cache_dir)
        index = store.read(".index", key(source) + ".json")
        note = _note(store, index["file"]) if index else None
        return note.size_bytes if note else None


def cached_images(cache_dir: str) -> Iterator[ImageNote]:
    """The notes of all cached images."""
    store = _Folder(cache_dir)
    try:
        for name in sorted(bounded_io.names(store.base)):
            note = None if name.startswith(".") else _note(store, name)
            if note:
                yield note
    except (FileNotFoundError, NotADirectoryError):
        return
    except bounded_io.StorageTimeout as exc:
        raise errors.OperationFailed(f"cannot list {store.base}: {exc.strerror}") from exc


def used(images_dir: str, name: str) -> float | None:
    """The time in seconds when the image was last used, or None if it is unknown."""
    try:
        return os.path.getmtime(_Folder(images_dir).path(".meta", name + ".json"))
    except FileNotFoundError:
        return None


def forget_partial(images_dir: str, test: bool = False) -> list[str]:
    """Remove downloads that were not continued for :data:`PARTIAL_LIFETIME_S`, and return their
    names in the cache. test: remove nothing."""
    store, removed = _Folder(images_dir), []
    try:
        names = bounded_io.names(store.path(".partial"))
    except OSError:
        return []
    for name in sorted({file_name.removesuffix(".json") for file_name in names}):
        part = store.path(".partial", name)
        if _KEY.fullmatch(name) and _is_old(part):
            with (
                contextlib.suppress(errors.OperationFailed),  # another process resumes it now
                file_lock.exclusive(store.path(".locks", name), timeout_s=0),
            ):
                if _is_old(part):
                    if not test:
                        web.forget(part)
                    removed.append(os.path.join(".partial", name))
    return removed


def _is_old(part: str) -> bool:
    """Whether neither a partial file nor its note was written to for a long time."""
    ages = []
    for path in (part, part + ".json"):
        with contextlib.suppress(FileNotFoundError):
            ages.append(time.time() - bounded_io.stat(path).st_mtime)
    return bool(ages) and min(ages) > PARTIAL_LIFETIME_S


def forget(images_dir: str, name: str) -> None:
    """Remove one image from the cache."""
    store = _Folder(images_dir)
    # a process that is killed in between leaves a note without an image, but no image without a
    # note
    for path in (store.path(name), store.path(".meta", name + ".json")):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
