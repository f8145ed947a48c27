"""Who could reach a file, a block device or a volume: asked by all that deletes.

Counted are all domains of this host by every definition that libvirt keeps (running, at the
next start, each snapshot's and checkpoint's, saved memory), what their disks are based on, images
that no domain names but that are based on others, and the host itself. Where something cannot be
read, nothing is proven.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from saltvirt import confidential, errors
from saltvirt.creation import Phase
from saltvirt.host import connection
from saltvirt.host.connection import libvirt, translate
from saltvirt.host.domain import aside, creation
from saltvirt.host.storage import (
    answers,
    bounded,
    chains,
    foreign_guests,
    identity,
    mounts,
    pool_source,
    references,
    shared,
    unchanged_disks,
    volume_content,
)

if TYPE_CHECKING:
    from saltvirt.host.storage.identity import Key

_SWAPS = "/proc/swaps"
# pools whose volumes are files below their target
FILES = ("dir", "fs", "netfs", "vstorage")
# pools whose volumes, and nothing else, have a device below their target
_GROUPS = ("logical", "zfs")
_SHOWN = 2
_SILENT = -1
# what is longer nobody can open
_LONGEST_PATH = 4096


@dataclass(frozen=True)
class User:
    """name: of a guest, or a path. file: the real path of an image that no guest names."""

    name: str
    running: bool = False
    file: str | None = None


@dataclass
class Usage:
    """users: by key (see identity). folders: (real path, User). unknown: sentences that say what
    could not be read: with one of them nothing is proven to be unused. images: the same of what an
    image needs, by its real path: not for what is deleted with it. private: the same of users'
    own guests, by the user's number: of what that user may open."""

    users: dict[Key, set[User]] = field(default_factory=dict)
    folders: list[tuple[str, User]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    private: dict[int, list[str]] = field(default_factory=dict)

    def add(self, keys: Iterable[Key], user: User) -> None:
        for key in keys:
            self.users.setdefault(key, set()).add(user)

    def doubt(self, text: str) -> None:
        if text not in self.unknown:
            self.unknown.append(text)

    def _found(self, keys: Iterable[Key]) -> Iterator[User]:
        for key in keys:
            yield from self.users.get(key, ())
            for folder, user in self.folders:
                # a key that is no path begins with no slash
                if f"{key}/".startswith(f"{folder.rstrip('/')}/"):
                    yield user

    def guests(self, keys: Iterable[Key]) -> list[str]:
        """Sorted names of the guests that could reach it."""
        return sorted({user.name for user in self._found(keys) if not user.file})

    def running(self, keys: Iterable[Key]) -> list[str]:
        """Those of them that run."""
        return sorted({user.name for user in self._found(keys) if user.running})

    def of(self, keys: Iterable[Key], doomed: Iterable[str] = ()) -> list[str]:
        """Sorted names of all that could reach it; doomed: real paths of images that are
        deleted with it, and so need nothing."""
        return sorted({user.name for user in self._found(keys) if user.file not in {*doomed}})

    def why(self, keys: Collection[Key], doomed: Iterable[str] = ()) -> str | None:
        """Why it must stay, in words; None when nobody could reach it."""
        users = self.of(keys, {*doomed} - {None})
        if users:
            return f"used by {confidential.listed(users)}"
        return self.doubts([key for key in keys if isinstance(key, str)], {*doomed})

    def doubts(self, paths: Collection[str], doomed: Collection[str] = ()) -> str | None:
        """Why it is not proven that nobody uses what has these paths, in words, or None."""
        images = [text for file, text in self.images.items() if file not in doomed]
        unknown = [*self.unknown, *images] or self._private(paths)
        if unknown:
            more = len(unknown) - _SHOWN
            shown = "; ".join(unknown[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            shown = confidential.part(shown, confidential.REASONS)
            return f"it cannot be proven that nobody uses it: {shown}"
        return None

    def _private(self, paths: Collection[str]) -> list[str]:
        return [
            text
            for uid, texts in self.private.items()
            if any(foreign_guests.may_open(uid, path) for path in paths if path.startswith("/"))
            for text in texts
        ]


def keys_of(conn: libvirt.virConnect, path: str) -> frozenset[Key]:
    """The keys of a path on the connection's host, or of a volume on a server by libvirt's path."""
    if not path.startswith("/"):
        with contextlib.suppress(libvirt.libvirtError):
            return keys_of_volume(conn, conn.storageVolLookupByPath(path))
        return frozenset({("server", path), ("server", urlsplit(path).path.lstrip("/"))})
    if not connection.is_local(conn):
        return frozenset({os.path.normpath(path)})
    below = chains.read(path, "raw").paths[1:]
    return identity.of(path).union(*(_whole(part) for part in below))


def _whole(path: str) -> set[Key]:
    """The keys by which a part of a device finds who has all of it: a partition's disk, what a
    logical volume lies on."""
    return {("whole", key) for key in identity.of(path)}


def is_there(conn: libvirt.virConnect, path: str) -> bool:
    """False for a path that is surely not on the connection's host."""
    if not connection.is_local(conn) or not path.startswith("/"):
        return True
    try:
        return bounded.lexists(path)
    except bounded.Silent:
        return True


def others_may_have(conn: libvirt.virConnect, path: str) -> str | None:
    """Why other hosts could reach a path, too, in words; None when only this one can."""
    if not path.startswith("/"):
        return "it is on a server"
    return shared.why(path) if connection.is_local(conn) else "its host is another machine"


def held(conn: libvirt.virConnect, path: str) -> str | None:
    """Why a path that no definition names must stay, in words: a QEMU has it open, whoever
    started it, or nobody answers; None otherwise, and on another machine."""
    if not connection.is_local(conn) or not path.startswith("/"):
        return None
    try:
        return _open_words(path) if unchanged_disks.is_open(path) else None
    except bounded.Silent as exc:
        return exc.strerror


def _open_words(path: str) -> str:
    return f"a QEMU that this libvirt does not know has it open ('fuser -v {path}' shows which)"


@contextlib.contextmanager
def closed(conn: libvirt.virConnect, paths: Iterable[str]) -> Iterator[dict[str, str | None]]:
    """Gives {path: what :func:`held` says}; and for the block no QEMU opens these files, whoever
    starts it: between the question and the deletion nobody begins to use one."""
    found = {path: held(conn, path) for path in paths}
    with contextlib.ExitStack() as block:
        for path, why in found.items():
            if why or not (connection.is_local(conn) and path.startswith("/")):
                continue
            try:
                taken = block.enter_context(unchanged_disks.closed(path))
            except bounded.Silent as exc:
                found[path] = exc.strerror
            else:
                found[path] = _open_words(path) if taken else None
        yield found


def place(conn: libvirt.virConnect, path: str) -> shared.FileIdentity:
    """The shared.FileIdentity of a path, or of libvirt's path of what a server has."""
    if path.startswith("/"):
        return shared.place(path)
    names = {str(key[1]) for key in keys_of(conn, path) if key[0] == "server"}
    return shared.FileIdentity(path, names=tuple(sorted(names)))


def elsewhere(
    conn: libvirt.virConnect, places: Collection[shared.FileIdentity], below: str | None = None
) -> dict[str, str | None]:
    """{path: who on this host could reach it, in words; None where nobody can} for identities of
    another host."""
    used, found = read(conn, below=below), {}
    for one in places:
        users = {
            user.name
            for user in _who_meets(used, one)
            if not user.file or not any(_is(user.file, other) for other in places)
        }
        words = f"used by {confidential.listed(sorted(users))}"
        found[one.path] = words if users else used.doubts([one.path])
    return found


def _who_meets(used: Usage, place: shared.FileIdentity) -> Iterator[User]:
    """The Users of what may be the place of another host: by its path, its name, its inode."""
    names = {("server", name) for name in place.names}
    for key, users in used.users.items():
        alike = _may_be(key, place) if isinstance(key, str) else key in names
        if alike:
            yield from users
    for folder, user in used.folders:
        if shared.why(folder):
            yield user


def _is(path: str, place: shared.FileIdentity) -> bool:
    """Whether a path of this host is surely the place of another one."""
    if os.path.basename(path) != os.path.basename(place.path):
        return False
    there = shared.place(path)
    same = place.inode is not None and place.inode == there.inode
    return same or bool({*there.ids} & {*place.ids}) or urlsplit(path).path[1:] in place.names


def _may_be(path: str, place: shared.FileIdentity) -> bool:
    named = os.path.basename(path) == os.path.basename(place.path)
    try:
        if not bounded.lexists(path):
            return named
    except bounded.Silent:  # which is a doubt by itself
        return named
    there = shared.place(path)
    same = place.inode is not None and place.inode == there.inode
    alike = named or same or bool({*there.ids} & {*place.ids})
    return alike and shared.why(path) is not None


def keys(
    conn: libvirt.virConnect, pool: str, name: str, volume: Mapping[str, Any]
) -> frozenset[Key]:
    """The keys of a volume that was read. volume: a dict with its ``path``."""
    path = volume.get("path") or ""
    found: set[Key] = {("volume", pool, name), ("server", path)}
    if path.startswith("/"):
        found |= keys_of(conn, path)
    else:  # such as gluster://host/volume/file
        found.add(("server", urlsplit(path).path.lstrip("/")))
    return frozenset(found)


def keys_of_volume(conn: libvirt.virConnect, volume: libvirt.virStorageVol) -> frozenset[Key]:
    """The keys of a virStorageVol."""
    pool = volume.storagePoolLookupByVolume()
    direct = pool_source.direct(conn, pool, volume.name())
    found = keys(conn, pool.name(), volume.name(), {"path": volume.path()})
    if direct and direct.name:
        return found | {("server", direct.name)}
    return found


def keys_of_pool(conn: libvirt.virConnect, used: Usage, pool: libvirt.virStoragePool) -> set[Key]:
    """The keys of a virStoragePool's volumes, and of all that guests have below its target. Raises
    OSError where that cannot be looked into."""
    found: set[Key] = {key for key in used.users if key[:2] == ("volume", pool.name())}
    tree = ElementTree.fromstring(pool.XMLDesc(0))
    target = tree.findtext("target/path")
    if target:
        folders = {f"{os.path.normpath(target)}/", f"{identity.real(target)}/"}
        paths = [key for key in used.users if isinstance(key, str)]
        found.update(path for path in paths if any(path.startswith(one) for one in folders))
    for volume in pool.listAllVolumes() if pool.isActive() else ():
        found |= keys_of_volume(conn, volume)
    group = target and tree.get("type") in _GROUPS and connection.is_local(conn)
    if group and not pool.isActive():
        # a guest may name a volume of a group by its device
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in bounded.names(target or ""):
                found |= keys_of(conn, os.path.join(target or "", name))
    return found


def read(
    conn: libvirt.virConnect,
    but: str | None = None,
    images: bool = True,
    below: str | None = None,
    beside: Iterable[str] = (),
) -> Usage:
    """The Usage of the connection's host.

    but: UUID of a domain that does not count. images: also count images that no domain names:
    those of storage pools, all below the folder ``below``, and those beside the given paths.
    """
    found = _Reader(conn, but)
    return found.read(images, below, {os.path.dirname(path) for path in beside} - {""})


class _Reader:
    def __init__(self, conn: libvirt.virConnect, but: str | None) -> None:
        self.conn = conn
        self.but = but
        self.local = connection.is_local(conn)
        self.found = Usage()
        self.declared: set[Key] = set()
        # of users' own guests: what was asked already, and how much of it each user has
        self.asked: set[tuple[str, references.Name]] = set()
        self.files: dict[int, int] = {}

    def read(self, images: bool, below_folder: str | None, folders: Iterable[str]) -> Usage:
        with bounded.noting() as silent:
            self.all(images, below_folder, folders)
        for place in sorted(silent):
            self.found.doubt(f"what is on {place} is not known: it does not answer")
        for one in foreign_guests.read(self.conn.getURI()) if self.local else ():
            self.foreign(one)
        if self.local:
            self.aside()
        return self.found

    def aside(self) -> None:
        """Guests as they were before a backup took their place."""
        try:
            kept = [one for one in aside.every() if one.uuid != self.but]
        except errors.OperationFailed as exc:
            self.found.doubt(exc.text)
            return
        for one in kept:
            user = User(f"{one.name} as it was before {one.backup}")
            for name in references.of_tree(one.tree):
                self.name(name, user)

    def foreign(self, one: foreign_guests.Definition | foreign_guests.Doubt) -> None:
        """A guest that this connection does not show, or that it cannot be known."""
        if isinstance(one, foreign_guests.Doubt):
            self.private_doubt(one.uid, one.text)
        elif self.but is None or one.tree.findtext("uuid") != self.but:
            for name in references.of_tree(one.tree):
                if one.uid is None:
                    self.name(name, User(one.who))
                elif not self.private(name, one, one.uid):
                    break

    def private_doubt(self, uid: int | None, text: str) -> None:
        if uid is None:
            self.found.doubt(text)
        elif text not in self.found.private.setdefault(uid, []):
            self.found.private[uid].append(text)

    def private(self, name: references.Name, one: foreign_guests.Definition, uid: int) -> bool:
        """What a user's own guest names: it uses what the user may open. False when he has named
        more than anybody has: what he names else is not known."""
        if (one.who, name) in self.asked:
            return True
        if self.files.get(uid, 0) >= foreign_guests.MOST_FILES:
            most = f"they name more than {foreign_guests.MOST_FILES} files"
            self.private_doubt(uid, f"what guests of user {uid} need is not known: {most}")
            return False
        self.asked.add((one.who, name))
        self.files[uid] = self.files.get(uid, 0) + 1
        if name.volume:
            self.private_doubt(uid, f"{one.who} has a disk in a pool that is not known here")
        if not name.path or len(name.path) > _LONGEST_PATH:
            return True
        user = User(one.who)
        if name.folder and _owner(name.path) == uid:
            self.found.folders.append((identity.real(name.path), user))
        chain = chains.read(name.path, name.format)
        self.files[uid] += len(chain.paths)
        for part in chain.paths:
            if foreign_guests.may_open(uid, part):
                self.found.add(identity.of(part), user)
        why = chain.unreadable or chain.broken
        if chain.missing and not _surely_gone(self.conn, chain.missing):
            why = f"{chain.missing} is not there"
        if why and not name.closed:
            self.private_doubt(uid, f"what {one.who} needs is not known: {why}")
        return True

    def all(self, images: bool, below_folder: str | None, folders: Iterable[str]) -> None:
        for dom in self.conn.listAllDomains():
            self.domain(dom)
        if self.local:
            self.host()
        if images:
            for pool in self.conn.listAllStoragePools():
                self.pool(pool)
            for folder in folders if self.local else ():
                self.folder(folder)
            if self.local and below_folder:
                self.below(below_folder)

    def domain(self, dom: libvirt.virDomain) -> None:
        name = "a guest"
        try:
            name = dom.name()
            own = dom.UUIDString() == self.but
            running = bool(dom.isActive())
            trees = [ElementTree.fromstring(text) for text in texts(dom)]
        except libvirt.libvirtError as exc:
            if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                self.found.doubt(f"{name} cannot be read: {translate(exc).text}")
            return
        names = [one for tree in trees for one in references.of_tree(tree)]
        if own:
            self.own(names)
            return
        making = any(creation.of_tree(tree) is not Phase.COMPLETE for tree in trees)
        for one in names:
            self.name(one, User(name, running), making)

    def own(self, names: Iterable[references.Name]) -> None:
        """Of the domain that does not count: what its disks are based on is needed as long as they
        are there. Without a declared format they are raw, as to libvirt."""
        for one in names if self.local else ():
            path = self.volume_path(one.volume) if one.volume else one.path
            if not path:
                continue
            chain = chains.read(path, one.format or "raw").paths
            for part in () if one.loose else chain:
                self.declared |= identity.of(part)
            for part in chain[1:]:
                self.found.add(identity.of(part), User(path, file=identity.real(path)))

    def name(self, one: references.Name, user: User, making: bool = False) -> None:
        """What one definition names."""
        if one.folder and one.path:
            self.found.folders.append((identity.real(one.path), user))
        path = one.path
        if one.volume:
            self.found.add([("volume", *one.volume)], user)
            path = self.volume_path(one.volume)
            if path is None and not one.closed and one.format not in (None, *chains.ALONE):
                place = "/".join(map(str, one.volume))
                self.found.doubt(f"{place}, a disk of {user.name}, is not there")
        if one.server:
            self.found.add([("server", one.server)], user)
            if not one.closed and one.format not in (None, *chains.ALONE):
                self.found.doubt(f"{one.server}, a disk of {user.name}, lies on a server")
        if path:
            self.chain(path, one, user, making)

    def chain(self, path: str, one: references.Name, user: User, making: bool) -> None:
        if not self.local:
            self.remote_chain(path, one, user)
            return
        chain = chains.read(path, one.format)
        self.found.add(_whole(path), user)
        for part in chain.paths:
            keys = identity.of(part)
            self.declared |= set() if one.loose else keys
            self.found.add(keys, user)
        if one.closed:
            return
        if chain.unreadable or chain.broken:
            why = chain.unreadable or chain.broken
            self.found.doubt(f"what {user.name} needs is not known: {why}")
        elif chain.missing and not making and not _surely_gone(self.conn, chain.missing):
            self.found.doubt(
                f"{chain.missing}, which {user.name} needs, is not there: its file system may not "
                "be mounted"
            )

    def remote_chain(self, path: str, one: references.Name, user: User) -> None:
        """On another machine libvirt's volumes are all that can be seen."""
        below: str | None = path
        format: str | None = one.format or "raw"
        seen = set[str]()
        while below and below not in seen:
            path = below
            seen.add(path)
            self.found.add([os.path.normpath(path)], user)
            if format in chains.ALONE:
                return
            try:
                there = volume_content.definition(self.conn.storageVolLookupByPath(path))
            except libvirt.libvirtError:
                if not one.closed:
                    self.found.doubt(f"{path}, which {user.name} needs, is in no storage pool")
                return
            except errors.VirtError as exc:
                self.found.doubt(exc.text)
                return
            below, format = there.backing_path, there.backing_format

    def volume_path(self, volume: tuple[str, str]) -> str | None:
        """Where the volume that a definition names lies; None where that cannot be told."""
        try:
            pool = self.conn.storagePoolLookupByName(volume[0])
            tree = ElementTree.fromstring(pool.XMLDesc(0))
            with contextlib.suppress(libvirt.libvirtError):
                return pool.storageVolLookupByName(volume[1]).path()
            target = tree.findtext("target/path")
            if target and tree.get("type") in FILES:
                return os.path.join(target, volume[1])
        except libvirt.libvirtError:
            pass
        return None

    def image(self, path: str) -> None:
        """A file or volume: what it is based on is needed by it, whoever uses it."""
        if identity.of(path) & self.declared:
            return  # a domain uses it, by a format that is declared
        chain = chains.read(path)
        real = identity.real(path)
        if chain.unreadable:
            self.found.images[real] = f"what {path} needs is not known: {chain.unreadable}"
        for part in chain.paths[1:]:
            self.found.add(identity.of(part), User(path, file=real))

    def pool(self, pool: libvirt.virStoragePool) -> None:
        try:
            name, active = pool.name(), pool.isActive()
            tree = ElementTree.fromstring(pool.XMLDesc(0))
            kind, target = tree.get("type"), tree.findtext("target/path")
            volumes = pool.listAllVolumes() if active else []
        except libvirt.libvirtError as exc:
            if exc.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_POOL:
                self.found.doubt(f"storage pool {pool.name()}: {translate(exc).text}")
            return
        if kind in FILES and target and self.local:
            if not active and kind != "dir" and not _is_mounted(target):
                self.found.doubt(f"storage pool {name} is not started: what it holds is not known")
            self.folder(target)
        elif not active and kind in (*FILES, "gluster"):
            self.found.doubt(f"storage pool {name} is not started: what it holds is not known")
        for volume in volumes:
            self.volume(volume)

    def folder(self, folder: str) -> None:
        try:
            paths = bounded.files(folder)
        except FileNotFoundError:
            return
        except OSError as exc:
            self.found.doubt(f"{folder} cannot be looked through: {exc.strerror}")
            return
        for path in paths:
            self.image(path)

    def below(self, folder: str) -> None:
        try:
            for path in bounded.files_below(folder):
                self.image(path)
        except bounded.Silent:
            pass  # of which is taken note
        except OSError as exc:
            self.found.doubt(f"{folder} cannot be looked through: {exc.strerror}")

    def volume(self, volume: libvirt.virStorageVol) -> None:
        """By its header where it can be read, else by what libvirt says of it."""
        try:
            path = volume.path()
            there = self.local and path.startswith("/") and _mode(path)
            if there == _SILENT or stat.S_ISREG(there):
                self.image(path)
                return
            answers.volume(volume)
            base = volume_content.definition(volume).backing_path
        except bounded.Silent:
            return  # of which is taken note
        except errors.VirtError as exc:
            self.found.doubt(exc.text)
            return
        except libvirt.libvirtError as exc:
            if exc.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
                self.found.doubt(translate(exc).text)
            return
        if there:
            self.image(path)
        if base:
            below = {key for key in keys_of(self.conn, base) if key[0] != "whole"}
            self.found.add(below, User(path, file=identity.real(path)))

    def host(self) -> None:
        """What this machine itself has mounted, swaps to or shows as a loop device."""
        for mount in mounts.read():
            if not mounts.is_fuse(mount.kind):  # any user may mount one, of whatever name
                self.use(mount.source, f"this host, mounted at {mount.place}")
        for line in mounts.lines(_SWAPS)[1:]:
            self.use(mounts.plain(line.split(" ")[0]), "this host, for its swap")
        with contextlib.suppress(OSError):
            for name in os.listdir("/sys/block"):
                for path in identity.below(f"/dev/{name}") if name.startswith("loop") else ():
                    self.use(path, f"this host, as /dev/{name}")

    def use(self, path: str, words: str) -> None:
        if path.startswith("/"):
            for part in chains.read(path, "raw").paths:
                self.found.add(identity.of(part), User(words))


def decide(
    conn: libvirt.virConnect,
    candidates: Mapping[str, str | None],
    used: Usage,
    unused: Iterable[str] = (),
) -> tuple[list[str], dict[str, str], dict[str, shared.FileIdentity]]:
    """(paths to delete, {path: reason}, {path: FileIdentity}) of {real path: reason to keep it
    or None}.

    unused: paths of which all other hosts have said that nobody there uses them. The identities are
    those of paths that stay only for want of that. What is kept can be based on what was to be
    deleted: that is kept, too. What is not there is deleted already.
    """
    asked, places = set(unused), dict[str, shared.FileIdentity]()

    def why(path: str) -> str | None:
        with bounded.noting() as silent:
            found = used.why(keys_of(conn, path), doomed)
            far = not found and others_may_have(conn, path)
        if silent:
            return f"{', '.join(sorted(silent))} does not answer"
        other = None if path in asked else far
        if other:
            places[path] = place(conn, path)
            found = f"other hosts may have it ({other}) and were not asked: salt-run asks them"
        return found

    doomed = {path for path, reason in candidates.items() if reason is None}
    keep = {path: reason for path, reason in candidates.items() if reason}
    for path in keep:
        users = used.of(keys_of(conn, path), doomed)
        if users:
            keep[path] = f"used by {confidential.listed(users)}"
    while True:
        said = {path: why(path) for path in doomed if is_there(conn, path)}
        kept = {path: reason for path, reason in said.items() if reason}
        if not kept:
            return sorted(doomed), dict(sorted(keep.items())), places
        keep.update(kept)
        doomed -= set(kept)


def texts(dom: libvirt.virDomain) -> Iterator[str]:
    """Every definition that libvirt keeps of a domain."""
    yield dom.XMLDesc(0)
    kept: list[Callable[[], list[str]]] = [
        lambda: [dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)],
        lambda: [one.getXMLDesc(0) for one in dom.listAllSnapshots(0)],
        lambda: [one.getXMLDesc(0) for one in dom.listAllCheckpoints(0)],
        lambda: [dom.managedSaveGetXMLDesc(0)] if dom.hasManagedSaveImage(0) else [],
    ]
    unknown = (
        *(libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_OPERATION_UNSUPPORTED),
        *(libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT, libvirt.VIR_ERR_NO_DOMAIN_CHECKPOINT),
    )
    for ask in kept:
        try:
            yield from ask()
        except libvirt.libvirtError as exc:
            if exc.get_error_code() not in unknown:
                raise


def _owner(path: str) -> int | None:
    """The number of the user whose it is; None where that is not known."""
    try:
        return bounded.stat(path).st_uid
    except (OSError, ValueError):
        return None


def _is_mounted(folder: str) -> bool:
    return identity.real(folder) in {mount.place for mount in mounts.read()}


def _mode(path: str) -> int:
    """What kind of thing is at a path; 0 for nothing, _SILENT where nobody answers."""
    try:
        return bounded.stat(path).st_mode
    except bounded.Silent:
        return _SILENT
    except (OSError, ValueError):
        return 0


def _surely_gone(conn: libvirt.virConnect, path: str) -> bool:
    """Whether a file that is not there is gone, and not only its file system."""
    folder = os.path.dirname(path)
    try:
        if not bounded.names(folder):
            return False
    except OSError:
        return False
    mounted = {mount.place for mount in mounts.read()}
    return not any(
        place not in mounted and f"{path}/".startswith(f"{place.rstrip('/')}/")
        for place in (*mounts.to_mount(), *_pool_mounts(conn))
    )


def _pool_mounts(conn: libvirt.virConnect) -> Iterator[str]:
    """Where storage pools are mounted when they are started."""
    for pool in conn.listAllStoragePools():
        with contextlib.suppress(libvirt.libvirtError):
            tree = ElementTree.fromstring(pool.XMLDesc(0))
            if tree.get("type") in ("fs", "netfs", "vstorage") and not pool.isActive():
                yield tree.findtext("target/path") or "/"
