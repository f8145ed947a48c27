"""This host's images: one download per image and version, however many guests want it.

Layout of ``<virt:images>/_base``::

    debian-0123456789abcdef.qcow2   an image, named by its content, never changed
    .index/<address>.json           the version that an address had when it was fetched
    .meta/<file>.json               what is known of a file
    .partial/  .locks/              downloads under way

A new version of an address is a new file, so what is based on the old one stays as it is.
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
from saltvirt.host.storage import bounded_io, mount_guard
from saltvirt.images import checksum, free_space, header, inspect, locks, sources, storage, web
from saltvirt.migration.storage import incoming_path
from saltvirt.schema import Message, transient
from saltvirt.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from saltvirt.images.checksum import RequiredHash
    from saltvirt.images.sources import Client, Progress, SaltFiles, Version

DEFAULT_DIR = "/srv/salt-images"
BASE = "_base"
# a download that was broken off can be gone on with for so long
PARTIAL_LIFETIME_S = 7 * 24 * 3600
_KEY = re.compile("[0-9a-f]{40}")
_MAX_NOTE_BYTES = 1024**2


@dataclass(frozen=True)
class CachedImage:
    """An image on this host. ``sha256`` is None for a file of the operator's own, used where
    it lies, unless a hash of it was demanded."""

    path: str
    format: str
    virtual_size_bytes: int
    sha256: str | None
    source: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageNote(Message):
    """What is known of a file in the cache. file: its name; path: where it is, which is not
    written. sums: of its content, by their algorithm. source: its address, as it is shown. fetched:
    in seconds since 1970."""

    file: str
    format: str
    size_bytes: int
    sums: dict[str, str]
    source: str
    fetched: float
    path: str = transient("")


@dataclass(frozen=True)
class ImageFile:
    """An image that is on this host. format: what is declared of it, None where its content
    decides."""

    path: str
    format: str | None = None


def _nothing(_done: int, _total: int | None) -> None:
    """The progress of those who don't watch."""


@dataclass(frozen=True)
class _ImageRequest:
    """What is asked for: ``demanded`` is its (algorithm, digits) or None."""

    source: str
    client: Client
    required: RequiredHash | None
    progress: Progress


def folder(images_dir: str) -> str:
    """Where the images lie that belong to ``virt:images``."""
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
        """Two addresses of one content are written down at once, maybe: one after the other."""
        target = self.path(*parts)
        with locks.exclusive(self.path(".locks", "write")):
            with open(target + ".new", "w", encoding="utf-8") as file:
                json.dump(data, file)
            os.replace(target + ".new", target)


def key(source: str) -> str:
    """The name under which an address is kept."""
    return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:40]


def _required_hash(
    image_hash: object, source: str, download: SaltFiles | None
) -> RequiredHash | None:
    """(algorithm, digits) that the operator demands of the image, or None."""
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
        raise errors.InvalidInput(f"image {source}: there is no master to fetch it from")
    return download


def _client(source: str, download: SaltFiles | None) -> Client:
    """Who fetches from an address."""
    salt = sources.kind(source) == sources.SALT
    return _master(source, download) if salt else web.client(source)


def _read_list(path: str) -> str:
    try:
        with storage.open_for_reading(path) as file:
            data = file.read(sources.MAX_LIST_BYTES + 1)
    except OSError as exc:
        raise errors.ImageError(
            f"cannot read the list of hashes {path}: {exc.strerror or exc}"
        ) from exc
    sources.check_list_size(len(data))
    return data.decode("utf-8", "replace")


def _verify(
    path: str, source: str, required: RequiredHash | None, algorithms: Iterable[str] = ()
) -> dict[str, str]:
    """The file's hashes. Raises ImageError when it is not what was demanded."""
    needed = {*algorithms, *([required[0]] if required else [])}
    sums = checksum.hash_file(path, needed)
    if required and sums[required[0]] != required[1]:
        raise errors.ImageError(
            f"image {sources.shown(source)} has the {required[0]} {sums[required[0]]}, "
            f"not the demanded {required[1]}"
        )
    return sums


def _not_empty(info: inspect.ImageInfo, shown: str) -> None:
    if not info.virtual_size_bytes:
        raise errors.ImageError(f"{shown} is no disk image: the disk in it has no size")


def _local(source: str, local_file: ImageFile, required: RequiredHash | None) -> CachedImage:
    """A file or device on this host is used where it lies."""
    if os.path.exists(incoming_path(os.path.abspath(local_file.path))):
        raise errors.ImageError(
            f"a migration is just copying {local_file.path} to this host: try again"
        )
    info = inspect.inspect(local_file.path, local_file.format)
    _not_empty(info, local_file.path)
    if required and os.path.getsize(local_file.path) > free_space.MAX_BYTES:
        raise errors.ImageError(
            f"{local_file.path} is larger than {human_bytes(free_space.MAX_BYTES)}: its hash is "
            f"not read"
        )
    sums = _verify(local_file.path, source, required, ["sha256"]) if required else {}
    return CachedImage(info.path, info.format, info.virtual_size_bytes, sums.get("sha256"), source)


def _note(folder: _Folder, name: str) -> ImageNote | None:
    """What is known of a file in the cache, or None when it is not whole."""
    path = folder.path(name)
    try:
        note = ImageNote.from_answer(folder.read(".meta", name + ".json"), path)
    except errors.BadAnswer:
        return None
    return replace(note, path=path) if bounded_io.is_file(path) else None


def _cached(
    folder: _Folder, request: _ImageRequest, version: Version, touch: bool = True
) -> CachedImage | None:
    """The CachedImage of exactly this version, or None. touch: note that it was used."""
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
    """The CachedImage of this address with the demanded hash: nobody need be asked."""
    index = folder.read(".index", key(request.source) + ".json")
    return _cached(folder, request, index["version"], touch) if index and request.required else None


def _image(note: ImageNote, source: str) -> CachedImage:
    return CachedImage(note.path, note.format, note.size_bytes, note.sums["sha256"], source)


def _inspect_part(part: str, shown: str) -> inspect.ImageInfo:
    """The ImageInfo of what was fetched. The user knows the address, not our folder."""
    try:
        head = header.read(part)
        if head.backing or head.data_file:
            raise errors.ImageError(
                f"{part} refers to another file, {head.backing or head.data_file!r}: make it "
                "whole with qemu-img convert"
            )
        info = inspect.inspect(part)
        _not_empty(info, part)
        inspect.check(info.path, info.format)
    except errors.ImageError as exc:
        raise errors.ImageError(exc.text.replace(str(part), shown)) from exc
    return info


def _admit(folder: _Folder, part: str, request: _ImageRequest, version: Version) -> CachedImage:
    """Checks what was fetched and gives it its name in the cache."""
    source = request.source
    server_algorithm = version.get("hash_type")
    algorithms = {"sha256", "sha512"}
    if server_algorithm and server_algorithm in hashlib.algorithms_available:
        algorithms.add(server_algorithm)
    sums = _verify(part, source, request.required, algorithms)
    if server_algorithm in sums and sums[server_algorithm] != version["hsum"]:
        raise errors.ImageError(f"{sources.shown(source)} changed while it was copied: try again")
    info = _inspect_part(part, sources.shown(source))
    name = f"{sources.stem(source)}-{sums['sha256'][:16]}.{info.format}"
    os.chmod(part, 0o444)
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    note = ImageNote(
        file=name,
        format=info.format,
        size_bytes=info.virtual_size_bytes,
        sums=sums,
        source=sources.shown(source),
        fetched=time.time(),
        path=folder.path(name),
    )
    # who is killed between the two leaves a note of nothing, not an image that nobody knows
    folder.write(note.to_answer(), ".meta", name + ".json")
    os.rename(part, note.path)
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
            web.forget(part)  # what is there of it would be in the way of others
        raise
    try:
        return _admit(folder, part, request, version)
    finally:
        web.forget(part)


def _size(path: str) -> int | None:
    """The bytes of a download under way; None without one."""
    try:
        return os.path.getsize(path)
    except OSError:
        return None


def _shared(folder: _Folder, request: _ImageRequest) -> CachedImage:
    """The image from the cache, else downloaded into it, by one process at a time."""
    part = folder.path(".partial", key(request.source))

    def watch_progress() -> int | None:
        """How far the process is that downloads it; who waits for us sees that it goes on."""
        size = _size(part)
        if size:
            request.progress(size, None)
        return size

    with locks.exclusive(folder.path(".locks", key(request.source)), progress=watch_progress):
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
) -> CachedImage:
    """The CachedImage for an image's address, fetched when this host does not have it yet.

    source: ``salt://…`` (``?saltenv=…`` as in Salt), an absolute path, ``http(s)://…`` or
    ``ftp://…``. cache_dir: the host's ``virt:images``. download: a sources.SaltFiles, for
    ``salt://``. image_hash: what the image's hash must be (see checksum), or the address of
    a file that lists it. progress: called with (done, total) in bytes. local_file: the ImageFile of
    an
    image that is on this host; by default for an absolute path.

    A file on the host is used where it lies. However many processes ask at once, one
    downloads; the others wait for it and share it.
    Raises InvalidInput, NotFound, ImageError.
    """
    source_kind = sources.kind(source)
    try:
        required = _required_hash(image_hash, source, download)
        if local_file or source_kind == sources.PATH:
            return _local(source, local_file or ImageFile(source), required)
        if source_kind == sources.POOL:
            raise errors.InvalidInput(f"image {source}: a pool's volume cannot be used here")
        folder = _Folder(cache_dir)
        folder.make()
        client = _client(source, download)
        return _shared(folder, _ImageRequest(source, client, required, progress or _nothing))
    except OSError as exc:
        kind = errors.Refused if free_space.is_full(exc) else errors.ImageError
        raise kind(
            f"cannot fetch {sources.shown(source)} to {cache_dir}: {exc.strerror or exc}"
        ) from exc


def find_local(
    source: str,
    cache_dir: str = DEFAULT_DIR,
    download: SaltFiles | None = None,
    image_hash: object = None,
    local_file: ImageFile | None = None,
) -> CachedImage | None:
    """The CachedImage that :func:`fetch` would return without fetching, or None. Writes nothing.

    Raises InvalidInput, NotFound, ImageError.
    """
    source_kind = sources.kind(source)
    with _translate_errors(source):
        required = _required_hash(image_hash, source, download)
        if local_file or source_kind == sources.PATH:
            return _local(source, local_file or ImageFile(source), required)
        folder = _Folder(cache_dir)
        client = _client(source, download)
        request = _ImageRequest(source, client, required, _nothing)
        image = _by_hash(folder, request, touch=False)
        return image or _cached(folder, request, client.version(source), touch=False)


@contextlib.contextmanager
def _translate_errors(source: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise errors.ImageError(
            f"cannot look at {sources.shown(source)}: {exc.strerror or exc}"
        ) from exc


def cached_size_bytes(
    source: str, cache_dir: str = DEFAULT_DIR, local_file: ImageFile | None = None
) -> int | None:
    """The bytes that an image shows a guest, when it is on this host already; else None.

    local_file: as for :func:`fetch`. Nobody is asked whether it is the latest.
    Raises InvalidInput, NotFound, ImageError.
    """
    with _translate_errors(source):
        if local_file or sources.kind(source) == sources.PATH:
            return _local(source, local_file or ImageFile(source), None).virtual_size_bytes
        store = _Folder(cache_dir)
        index = store.read(".index", key(source) + ".json")
        note = _note(store, index["file"]) if index else None
        return note.size_bytes if note else None


def cached_images(cache_dir: str) -> Iterator[ImageNote]:
    """What is in the cache."""
    store = _Folder(cache_dir)
    try:
        for name in sorted(bounded_io.names(store.base)):
            note = None if name.startswith(".") else _note(store, name)
            if note:
                yield note
    except (FileNotFoundError, NotADirectoryError):
        return
    except bounded_io.StorageTimeout as exc:
        raise errors.OperationFailed(f"{store.base} cannot be looked into: {exc.strerror}") from exc


def used(images_dir: str, name: str) -> float | None:
    """The second in which somebody was last given an image; None of one that is not known."""
    try:
        return os.path.getmtime(_Folder(images_dir).path(".meta", name + ".json"))
    except FileNotFoundError:
        return None


def forget_partial(images_dir: str, test: bool = False) -> list[str]:
    """Removes what downloads left that nobody has gone on with for :data:`PARTIAL_S`; how they are
    called in the cache. test: removes nothing."""
    store, removed = _Folder(images_dir), []
    try:
        names = bounded_io.names(store.path(".partial"))
    except OSError:
        return []
    for name in sorted({file_name.removesuffix(".json") for file_name in names}):
        part = store.path(".partial", name)
        if _KEY.fullmatch(name) and _is_old(part):
            with (
                contextlib.suppress(errors.OperationFailed),  # somebody goes on with it just now
                locks.exclusive(store.path(".locks", name), timeout_s=0),
            ):
                if _is_old(part):
                    if not test:
                        web.forget(part)
                    removed.append(os.path.join(".partial", name))
    return removed


def _is_old(part: str) -> bool:
    """Whether neither a part nor its note was written to for long."""
    ages = []
    for path in (part, part + ".json"):
        with contextlib.suppress(FileNotFoundError):
            ages.append(time.time() - bounded_io.stat(path).st_mtime)
    return bool(ages) and min(ages) > PARTIAL_LIFETIME_S


def forget(images_dir: str, name: str) -> None:
    """Removes one image from the cache."""
    store = _Folder(images_dir)
    # who is killed between the two leaves a note of nothing, not an image that nobody knows
    for path in (store.path(name), store.path(".meta", name + ".json")):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
