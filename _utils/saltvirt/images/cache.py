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
from saltvirt.host.storage import bounded, mounted
from saltvirt.images import checksum, header, inspect, locks, room, sources, storage, web
from saltvirt.migration.storage import coming
from saltvirt.units import human_bytes
from saltvirt.wire import Fact, untold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from saltvirt.images.checksum import Demanded
    from saltvirt.images.sources import Client, Progress, SaltFiles, Version

DEFAULT_DIR = "/srv/salt-images"
BASE = "_base"
# a download that was broken off can be gone on with for so long
PARTIAL_S = 7 * 24 * 3600
_KEY = re.compile("[0-9a-f]{40}")
_LONGEST_NOTE = 1024**2


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
class ImageNote(Fact):
    """What is known of a file in the cache. file: its name; path: where it is, which is not
    written. sums: of its content, by their algorithm. source: its address, as it is shown. fetched:
    in seconds since 1970."""

    file: str
    format: str
    size_bytes: int
    sums: dict[str, str]
    source: str
    fetched: float
    path: str = untold("")


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
    demanded: Demanded | None
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
        mounted.make_folder(self.base, 0o755)
        for name in (".index", ".meta", ".partial", ".locks"):
            os.makedirs(self.path(name), mode=0o700, exist_ok=True)

    def read(self, *parts: str) -> Any:
        try:
            return json.loads(bounded.head(self.path(*parts), _LONGEST_NOTE) or b"")
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


def _demanded(image_hash: object, source: str, download: SaltFiles | None) -> Demanded | None:
    """(algorithm, digits) that the operator demands of the image, or None."""
    if not image_hash:
        return None
    image_hash = str(image_hash)
    if checksum.is_value(image_hash):
        return checksum.parse(image_hash)
    try:
        where = sources.kind(image_hash)
    except errors.InvalidInput:
        return checksum.parse(image_hash)  # which says what is wrong with it
    if where == sources.WEB:
        text = web.read_list(image_hash)
    elif where == sources.SALT:
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
        with storage.reading(path) as file:
            data = file.read(sources.LONGEST_LIST + 1)
    except OSError as exc:
        raise errors.ImageError(
            f"cannot read the list of hashes {path}: {exc.strerror or exc}"
        ) from exc
    sources.short(len(data))
    return data.decode("utf-8", "replace")


def _verify(
    path: str, source: str, demanded: Demanded | None, algorithms: Iterable[str] = ()
) -> dict[str, str]:
    """The file's hashes. Raises ImageError when it is not what was demanded."""
    wanted = {*algorithms, *([demanded[0]] if demanded else [])}
    sums = checksum.of_file(path, wanted)
    if demanded and sums[demanded[0]] != demanded[1]:
        raise errors.ImageError(
            f"image {sources.shown(source)} has the {demanded[0]} {sums[demanded[0]]}, "
            f"not the demanded {demanded[1]}"
        )
    return sums


def _not_empty(info: inspect.ImageInfo, shown: str) -> None:
    if not info.virtual_size_bytes:
        raise errors.ImageError(f"{shown} is no disk image: the disk in it has no size")


def _local(source: str, place: ImageFile, demanded: Demanded | None) -> CachedImage:
    """A file or device on this host is used where it lies."""
    if os.path.exists(coming(os.path.abspath(place.path))):
        raise errors.ImageError(f"a migration is just copying {place.path} to this host: try again")
    info = inspect.inspect(place.path, place.format)
    _not_empty(info, place.path)
    if demanded and os.path.getsize(place.path) > room.MOST_BYTES:
        raise errors.ImageError(
            f"{place.path} is larger than {human_bytes(room.MOST_BYTES)}: its hash is not read"
        )
    sums = _verify(place.path, source, demanded, ["sha256"]) if demanded else {}
    return CachedImage(info.path, info.format, info.virtual_size_bytes, sums.get("sha256"), source)


def _note(folder: _Folder, name: str) -> ImageNote | None:
    """What is known of a file in the cache, or None when it is not whole."""
    path = folder.path(name)
    try:
        note = ImageNote.from_answer(folder.read(".meta", name + ".json"), path)
    except errors.BadAnswer:
        return None
    return replace(note, path=path) if bounded.is_file(path) else None


def _cached(
    folder: _Folder, request: _ImageRequest, version: Version, touch: bool = True
) -> CachedImage | None:
    """The CachedImage of exactly this version, or None. touch: note that it was used."""
    index = folder.read(".index", key(request.source) + ".json")
    if not index or index["version"] != version:
        return None
    note = _note(folder, index["file"])
    if not note or (request.demanded and note.sums.get(request.demanded[0]) != request.demanded[1]):
        return None
    if touch:
        os.utime(folder.path(".meta", index["file"] + ".json"))
    return _image(note, request.source)


def _by_hash(folder: _Folder, request: _ImageRequest, touch: bool = True) -> CachedImage | None:
    """The CachedImage of this address with the demanded hash: nobody need be asked."""
    index = folder.read(".index", key(request.source) + ".json")
    return _cached(folder, request, index["version"], touch) if index and request.demanded else None


def _image(note: ImageNote, source: str) -> CachedImage:
    return CachedImage(note.path, note.format, note.size_bytes, note.sums["sha256"], source)


def _looked_at(part: str, shown: str) -> inspect.ImageInfo:
    """The ImageInfo of what was fetched. The user knows the address, not our folder."""
    try:
        found = header.read(part)
        if found.backing or found.data_file:
            raise errors.ImageError(
                f"{part} refers to another file, {found.backing or found.data_file!r}: make it "
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
    served = version.get("hash_type")
    ours = {"sha256", "sha512"}
    if served and served in hashlib.algorithms_available:
        ours.add(served)
    sums = _verify(part, source, request.demanded, ours)
    if served in sums and sums[served] != version["hsum"]:
        raise errors.ImageError(f"{sources.shown(source)} changed while it was copied: try again")
    info = _looked_at(part, sources.shown(source))
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
    web.remember(part, version)
    limit = room.Room(f"image {sources.shown(request.source)}", folder.base)

    def progress(done: int, total: int | None) -> None:
        limit.check(done, total)
        request.progress(done, total)

    try:
        version = request.client.fetch(request.source, part, version, progress)
    except (errors.Refused, OSError) as exc:
        if isinstance(exc, errors.Refused) or room.is_full(exc):
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

    def others() -> int | None:
        """How far the process is that downloads it; who waits for us sees that it goes on."""
        size = _size(part)
        if size:
            request.progress(size, None)
        return size

    with locks.exclusive(folder.path(".locks", key(request.source)), progress=others):
        found = _by_hash(folder, request)
        if found:
            return found
        version = request.client.version(request.source)
        return _cached(folder, request, version) or _download(folder, request, version)


def fetch(
    source: str,
    cache_dir: str = DEFAULT_DIR,
    download: SaltFiles | None = None,
    image_hash: object = None,
    *,
    progress: Progress | None = None,
    place: ImageFile | None = None,
) -> CachedImage:
    """The CachedImage for an image's address, fetched when this host does not have it yet.

    source: ``salt://…`` (``?saltenv=…`` as in Salt), an absolute path, ``http(s)://…`` or
    ``ftp://…``. cache_dir: the host's ``virt:images``. download: a sources.SaltFiles, for
    ``salt://``. image_hash: what the image's hash must be (see checksum), or the address of
    a file that lists it. progress: called with (done, total) in bytes. place: the ImageFile of an
    image that is on this host; by default for an absolute path.

    A file on the host is used where it lies. However many processes ask at once, one
    downloads; the others wait for it and share it.
    Raises InvalidInput, NotFound, ImageError.
    """
    where = sources.kind(source)
    try:
        demanded = _demanded(image_hash, source, download)
        if place or where == sources.PATH:
            return _local(source, place or ImageFile(source), demanded)
        if where == sources.POOL:
            raise errors.InvalidInput(f"image {source}: a pool's volume cannot be used here")
        folder = _Folder(cache_dir)
        folder.make()
        client = _client(source, download)
        return _shared(folder, _ImageRequest(source, client, demanded, progress or _nothing))
    except OSError as exc:
        kind = errors.Refused if room.is_full(exc) else errors.ImageError
        raise kind(
            f"cannot fetch {sources.shown(source)} to {cache_dir}: {exc.strerror or exc}"
        ) from exc


def look(
    source: str,
    cache_dir: str = DEFAULT_DIR,
    download: SaltFiles | None = None,
    image_hash: object = None,
    place: ImageFile | None = None,
) -> CachedImage | None:
    """The CachedImage that :func:`fetch` would return without fetching, or None. Writes nothing.

    Raises InvalidInput, NotFound, ImageError.
    """
    where = sources.kind(source)
    with _looking(source):
        demanded = _demanded(image_hash, source, download)
        if place or where == sources.PATH:
            return _local(source, place or ImageFile(source), demanded)
        folder = _Folder(cache_dir)
        client = _client(source, download)
        request = _ImageRequest(source, client, demanded, _nothing)
        found = _by_hash(folder, request, touch=False)
        return found or _cached(folder, request, client.version(source), touch=False)


@contextlib.contextmanager
def _looking(source: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise errors.ImageError(
            f"cannot look at {sources.shown(source)}: {exc.strerror or exc}"
        ) from exc


def here(source: str, cache_dir: str = DEFAULT_DIR, place: ImageFile | None = None) -> int | None:
    """The bytes that an image shows a guest, when it is on this host already; else None.

    place: as for :func:`fetch`. Nobody is asked whether it is the latest.
    Raises InvalidInput, NotFound, ImageError.
    """
    with _looking(source):
        if place or sources.kind(source) == sources.PATH:
            return _local(source, place or ImageFile(source), None).virtual_size_bytes
        store = _Folder(cache_dir)
        index = store.read(".index", key(source) + ".json")
        note = _note(store, index["file"]) if index else None
        return note.size_bytes if note else None


def known(cache_dir: str) -> Iterator[ImageNote]:
    """What is in the cache."""
    store = _Folder(cache_dir)
    try:
        for name in sorted(bounded.names(store.base)):
            note = None if name.startswith(".") else _note(store, name)
            if note:
                yield note
    except (FileNotFoundError, NotADirectoryError):
        return
    except bounded.Silent as exc:
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
    store, gone = _Folder(images_dir), []
    try:
        found = bounded.names(store.path(".partial"))
    except OSError:
        return []
    for name in sorted({one.removesuffix(".json") for one in found}):
        part = store.path(".partial", name)
        if _KEY.fullmatch(name) and _is_old(part):
            with (
                contextlib.suppress(errors.OperationFailed),  # somebody goes on with it just now
                locks.exclusive(store.path(".locks", name), patience_s=0),
            ):
                if _is_old(part):
                    if not test:
                        web.forget(part)
                    gone.append(os.path.join(".partial", name))
    return gone


def _is_old(part: str) -> bool:
    """Whether neither a part nor its note was written to for long."""
    ages = []
    for path in (part, part + ".json"):
        with contextlib.suppress(FileNotFoundError):
            ages.append(time.time() - bounded.stat(path).st_mtime)
    return bool(ages) and min(ages) > PARTIAL_S


def forget(images_dir: str, name: str) -> None:
    """Removes one image from the cache."""
    store = _Folder(images_dir)
    # who is killed between the two leaves a note of nothing, not an image that nobody knows
    for path in (store.path(name), store.path(".meta", name + ".json")):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
