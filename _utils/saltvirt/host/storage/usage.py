"""Users of a file, block device or volume; consulted before every deletion.

Users are all domains of this host in every definition that libvirt keeps (running, next start,
snapshots, checkpoints, saved memory), the backing files of their disks, images that no domain
refers to but that are based on others, and the host itself. If something cannot be read, nothing is
proven to be unused.
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

from saltvirt import errors
from saltvirt.answers.creation import Phase
from saltvirt.host import connection, hooks
from saltvirt.host.connection import libvirt, translate
from saltvirt.host.domain import creation
from saltvirt.host.storage import (
    answers,
    chains,
    foreign_guests,
    identity,
    pool_source,
    references,
    sharing,
    unchanged_disks,
    volume_content,
)
from saltvirt.rights import confidential
from saltvirt.system import bounded_io, mounts

if TYPE_CHECKING:
    from saltvirt.host.storage.identity import Key

_SWAPS = "/proc/swaps"
# pool types whose volumes are files below their target
FILES = ("dir", "fs", "netfs", "vstorage")
# pool types that have a device below their target for each volume
_GROUP_TYPES = ("logical", "zfs")
_MAX_SHOWN = 2
_NO_ANSWER = -1
# longer paths cannot be opened
_MAX_PATH = 4096


@dataclass(frozen=True)
class StorageUser:
    """A user of storage.

    name: of a guest, or a path. file: real path of an image that no guest refers to.
    """

    name: str
    running: bool = False
    file: str | None = None


@dataclass
class Usage:
    """Users of storage on one host.

    users: by key; see identity. folders: (real path, StorageUser). unknown: messages about what
    could not be read; while there is one, nothing is proven to be unused. images: the same for what
    an image may need, by the image's real path; ignored if that image is deleted as well. private:
    the same for guests of users' session daemons, by uid, for files that the user may open.
    """

    users: dict[Key, set[StorageUser]] = field(default_factory=dict)
    folders: list[tuple[str, StorageUser]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    private: dict[int, list[str]] = field(default_factory=dict)

    def add(self, keys: Iterable[Key], user: StorageUser) -> None:
        for key in keys:
            self.users.setdefault(key, set()).add(user)

    def add_unknown(self, text: str) -> None:
        if text not in self.unknown:
            self.unknown.append(text)

    def _users_with(self, keys: Iterable[Key]) -> Iterator[StorageUser]:
        for key in keys:
            yield from self.users.get(key, ())
            for folder, user in self.folders:
                # only keys that are paths begin with a slash
                if f"{key}/".startswith(f"{folder.rstrip('/')}/"):
                    yield user

    def guests(self, keys: Iterable[Key]) -> list[str]:
        """Return the sorted names of the guests that could use one of the keys."""
        return sorted({user.name for user in self._users_with(keys) if not user.file})

    def running(self, keys: Iterable[Key]) -> list[str]:
        """Return the sorted names of the running guests that could use one of the keys."""
        return sorted({user.name for user in self._users_with(keys) if user.running})

    def users_of(self, keys: Iterable[Key], to_delete: Iterable[str] = ()) -> list[str]:
        """Return the sorted names of all users.

        to_delete: real paths of images that are deleted as well, and therefore need nothing.
        """
        users = self._users_with(keys)
        return sorted({user.name for user in users if user.file not in {*to_delete}})

    def keep_reason(self, keys: Collection[Key], to_delete: Iterable[str] = ()) -> str | None:
        """Return the reason for keeping it, or None if it is proven to be unused."""
        users = self.users_of(keys, {*to_delete} - {None})
        if users:
            return f"used by {confidential.sensitive_names(users)}"
        return self.unproven_reason([key for key in keys if isinstance(key, str)], {*to_delete})

    def unproven_reason(
        self, paths: Collection[str], to_delete: Collection[str] = ()
    ) -> str | None:
        """Return why these paths are not proven to be unused, or None."""
        images = [text for file, text in self.images.items() if file not in to_delete]
        unknown = [*self.unknown, *images] or self._private(paths)
        if unknown:
            hidden_count = len(unknown) - _MAX_SHOWN
            rest = [f"and {hidden_count} more"] if hidden_count > 0 else []
            shown = "; ".join([*unknown[:_MAX_SHOWN], *rest])
            shown = confidential.sensitive(shown, confidential.REASONS)
            return f"it cannot be proven to be unused: {shown}"
        return None

    def _private(self, paths: Collection[str]) -> list[str]:
        files = [path for path in paths if path.startswith("/")]
        owners = [
            uid for uid in self.private if any(foreign_guests.may_open(uid, f) for f in files)
        ]
        return [text for uid in owners for text in self.private[uid]]


def keys_of(conn: libvirt.virConnect, path: str) -> frozenset[Key]:
    """Return the keys of a path on the connection's host, or of a server's volume by libvirt's
    path."""
    if not path.startswith("/"):
        with contextlib.suppress(libvirt.libvirtError):
            return keys_of_volume(conn, conn.storageVolLookupByPath(path))
        return frozenset({("server", path), ("server", urlsplit(path).path.lstrip("/"))})
    if not connection.is_local(conn):
        return frozenset({os.path.normpath(path)})
    underlying = chains.read(path, "raw").paths[1:]
    return identity.keys_of(path).union(*(_whole_keys(part) for part in underlying))


def _whole_keys(path: str) -> set[Key]:
    """Return the keys that connect a part of a device to users of the whole, such as a partition's
    disk."""
    return {("whole", key) for key in identity.keys_of(path)}


def is_there(conn: libvirt.virConnect, path: str) -> bool:
    """Return False if a path certainly does not exist on the connection's host."""
    if not connection.is_local(conn) or not path.startswith("/"):
        return True
    try:
        return bounded_io.lexists(path)
    except bounded_io.StorageTimeout:
        return True


def others_may_have(conn: libvirt.virConnect, path: str) -> str | None:
    """Return why other hosts could reach a path, or None."""
    if not path.startswith("/"):
        return "it is on a server"
    if not connection.is_local(conn):
        return "its host is another machine"
    return sharing.sharing_reason(path)


def open_reason(conn: libvirt.virConnect, path: str) -> str | None:
    """Return why a path must be kept that no definition refers to, or None.

    A QEMU process has it open, whatever started it, or the storage does not respond. On another
    machine the result is None.
    """
    if not connection.is_local(conn) or not path.startswith("/"):
        return None
    try:
        return _open_text(path) if unchanged_disks.is_open(path) else None
    except bounded_io.StorageTimeout as exc:
        return exc.strerror


def _open_text(path: str) -> str:
    return f"an unknown QEMU process has it open ('fuser -v {path}' shows which)"


@contextlib.contextmanager
def prevent_open(conn: libvirt.virConnect, paths: Iterable[str]) -> Iterator[dict[str, str | None]]:
    """Prevent QEMU from opening these files within the block; yield {path: open reason or None}.

    Between the check and the deletion no QEMU process can start to use a file.
    """
    reasons = {path: open_reason(conn, path) for path in paths}
    with contextlib.ExitStack() as block:
        for path, reason in reasons.items():
            if reason or not (connection.is_local(conn) and path.startswith("/")):
                continue
            try:
                already_open = block.enter_context(unchanged_disks.prevent_open(path))
            except bounded_io.StorageTimeout as exc:
                reasons[path] = exc.strerror
            else:
                reasons[path] = _open_text(path) if already_open else None
        yield reasons


def file_identity(conn: libvirt.virConnect, path: str) -> sharing.FileIdentity:
    """Return the FileIdentity of a path, or of libvirt's path of a volume on a server."""
    if path.startswith("/"):
        return sharing.file_identity(path)
    names = {str(key[1]) for key in keys_of(conn, path) if key[0] == "server"}
    return sharing.FileIdentity(path, names=tuple(sorted(names)))


def users_here(
    conn: libvirt.virConnect,
    identities: Collection[sharing.FileIdentity],
    below_folder: str | None = None,
) -> dict[str, str | None]:
    """Return {path: who on this host could use it, or None} for identities from another host."""
    used, reasons = read(conn, below_folder=below_folder), {}
    for identity_fact in identities:
        users = {
            user.name
            for user in _matching_users(used, identity_fact)
            if not user.file or not any(_is_same(user.file, candidate) for candidate in identities)
        }
        user_text = f"used by {confidential.sensitive_names(sorted(users))}"
        reasons[identity_fact.path] = (
            user_text if users else used.unproven_reason([identity_fact.path])
        )
    return reasons


def _matching_users(used: Usage, identity_fact: sharing.FileIdentity) -> Iterator[StorageUser]:
    """Yield the users of storage that may be the same as on another host, by path, name or
    inode."""
    names = {("server", name) for name in identity_fact.names}
    for key, users in used.users.items():
        matches = _may_be_same(key, identity_fact) if isinstance(key, str) else key in names
        if matches:
            yield from users
    for folder, user in used.folders:
        if sharing.sharing_reason(folder):
            yield user


def _is_same(path: str, identity_fact: sharing.FileIdentity) -> bool:
    """Return whether a path on this host is certainly the same as the one on another host."""
    if os.path.basename(path) != os.path.basename(identity_fact.path):
        return False
    local_identity = sharing.file_identity(path)
    same_inode = identity_fact.inode is not None and identity_fact.inode == local_identity.inode
    return (
        same_inode
        or bool({*local_identity.ids} & {*identity_fact.ids})
        or urlsplit(path).path[1:] in identity_fact.names
    )


def _may_be_same(path: str, identity_fact: sharing.FileIdentity) -> bool:
    same_name = os.path.basename(path) == os.path.basename(identity_fact.path)
    try:
        if not bounded_io.lexists(path):
            return same_name
    except bounded_io.StorageTimeout:  # the timeout itself is reported as unknown
        return same_name
    local_identity = sharing.file_identity(path)
    same_inode = identity_fact.inode is not None and identity_fact.inode == local_identity.inode
    matches = same_name or same_inode or bool({*local_identity.ids} & {*identity_fact.ids})
    return matches and sharing.sharing_reason(path) is not None


def keys(
    conn: libvirt.virConnect, pool: str, name: str, volume: Mapping[str, Any]
) -> frozenset[Key]:
    """Return the keys of a volume.

    volume: a dict with its ``path``.
    """
    path = volume.get("path") or ""
    key_set: set[Key] = {("volume", pool, name), ("server", path)}
    if path.startswith("/"):
        key_set |= keys_of(conn, path)
    else:  # such as gluster://host/volume/file
        key_set.add(("server", urlsplit(path).path.lstrip("/")))
    return frozenset(key_set)


def keys_of_volume(conn: libvirt.virConnect, volume: libvirt.virStorageVol) -> frozenset[Key]:
    """Return the keys of a virStorageVol."""
    pool = volume.storagePoolLookupByVolume()
    direct = pool_source.direct(conn, pool, volume.name())
    key_set = keys(conn, pool.name(), volume.name(), {"path": volume.path()})
    if direct and direct.server and direct.server.name:
        return key_set | {("server", direct.server.name)}
    return key_set


def keys_of_pool(conn: libvirt.virConnect, used: Usage, pool: libvirt.virStoragePool) -> set[Key]:
    """Return the keys of a pool's volumes and of everything that guests use below its target.

    Raises OSError if the target cannot be read.
    """
    key_set: set[Key] = {key for key in used.users if key[:2] == ("volume", pool.name())}
    tree = ElementTree.fromstring(pool.XMLDesc(0))
    target = tree.findtext("target/path")
    if target:
        folders = {f"{os.path.normpath(target)}/", f"{identity.real(target)}/"}
        paths = [key for key in used.users if isinstance(key, str)]
        key_set.update(path for path in paths if any(path.startswith(folder) for folder in folders))
    for volume in pool.listAllVolumes() if pool.isActive() else ():
        key_set |= keys_of_volume(conn, volume)
    group = target and tree.get("type") in _GROUP_TYPES and connection.is_local(conn)
    if group and not pool.isActive():
        # a guest may refer to a volume of the group by its device
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in bounded_io.names(target or ""):
                key_set |= keys_of(conn, os.path.join(target or "", name))
    return key_set


def read(
    conn: libvirt.virConnect,
    exclude_uuid: str | None = None,
    images: bool = True,
    below_folder: str | None = None,
    sibling_paths: Iterable[str] = (),
) -> Usage:
    """Return the Usage of the connection's host.

    exclude_uuid: UUID of a domain to ignore. images: also include images that no domain refers to:
    those of storage pools, those below ``below_folder``, and those beside ``sibling_paths``.
    """
    folders = {os.path.dirname(path) for path in sibling_paths} - {""}
    return _UsageReader(conn, exclude_uuid).read(images, below_folder, folders)


class _UsageReader:
    def __init__(self, conn: libvirt.virConnect, exclude_uuid: str | None) -> None:
        self.conn = conn
        self.exclude_uuid = exclude_uuid
        self.local = connection.is_local(conn)
        self.usage = Usage()
        self.declared: set[Key] = set()
        # for users' own guests: references already read, and files per user
        self.visited: set[tuple[str, references.StorageReference]] = set()
        self.file_counts: dict[int, int] = {}

    def read(self, images: bool, below_folder: str | None, folders: Iterable[str]) -> Usage:
        with bounded_io.record_timeouts() as unresponsive:
            self.all(images, below_folder, folders)
        for mount_point in sorted(unresponsive):
            self.usage.add_unknown(
                f"cannot check the users of files on {mount_point}: it does not respond"
            )
        for definition in foreign_guests.read(self.conn.getURI()) if self.local else ():
            self.foreign(definition)
        if self.local:
            self.retained_guests()
        return self.usage

    def retained_guests(self) -> None:
        """Add guests that were replaced and whose disks are retained."""
        try:
            retained = [g for feature in hooks.installed() for g in feature.retained_guests()]
        except errors.OperationFailed as exc:
            self.usage.add_unknown(exc.text)
            return
        for guest in retained:
            if guest.uuid != self.exclude_uuid:
                for name in references.references_of(guest.tree):
                    self.name(name, StorageUser(guest.label))

    def foreign(
        self, definition: foreign_guests.ForeignDefinition | foreign_guests.UnreadableForeign
    ) -> None:
        """Add a foreign guest, or the note that its definition cannot be read."""
        if isinstance(definition, foreign_guests.UnreadableForeign):
            self.private_doubt(definition.uid, definition.text)
        elif self.exclude_uuid is None or definition.tree.findtext("uuid") != self.exclude_uuid:
            for storage_ref in references.references_of(definition.tree):
                if definition.uid is None:
                    self.name(storage_ref, StorageUser(definition.guest_label))
                elif not self.private(storage_ref, definition, definition.uid):
                    break

    def private_doubt(self, uid: int | None, text: str) -> None:
        if uid is None:
            self.usage.add_unknown(text)
        elif text not in self.usage.private.setdefault(uid, []):
            self.usage.private[uid].append(text)

    def private(
        self,
        storage_ref: references.StorageReference,
        definition: foreign_guests.ForeignDefinition,
        uid: int,
    ) -> bool:
        """Add a reference of a user's own guest to files that the user may open.

        Returns False if the user's guests refer to more files than the limit; the rest is then
        unknown.
        """
        if (definition.guest_label, storage_ref) in self.visited:
            return True
        if self.file_counts.get(uid, 0) >= foreign_guests.MAX_FILES:
            limit = f"they refer to more than {foreign_guests.MAX_FILES} files"
            text = f"cannot determine the files of the guests of user {uid}: {limit}"
            self.private_doubt(uid, text)
            return False
        self.visited.add((definition.guest_label, storage_ref))
        self.file_counts[uid] = self.file_counts.get(uid, 0) + 1
        if storage_ref.volume:
            text = f"{definition.guest_label} has a disk in a storage pool that is unknown here"
            self.private_doubt(uid, text)
        if not storage_ref.path or len(storage_ref.path) > _MAX_PATH:
            return True
        user = StorageUser(definition.guest_label)
        if storage_ref.folder and _owner(storage_ref.path) == uid:
            self.usage.folders.append((identity.real(storage_ref.path), user))
        chain = chains.read(storage_ref.path, storage_ref.format)
        self.file_counts[uid] += len(chain.paths)
        for part in chain.paths:
            if foreign_guests.may_open(uid, part):
                self.usage.add(identity.keys_of(part), user)
        reason = chain.unreadable or chain.broken
        if chain.missing_path and not _surely_gone(self.conn, chain.missing_path):
            reason = f"{chain.missing_path} does not exist"
        if reason and not storage_ref.chain_complete:
            text = f"cannot determine the files of {definition.guest_label}: {reason}"
            self.private_doubt(uid, text)
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
                self.image_tree(below_folder)

    def domain(self, dom: libvirt.virDomain) -> None:
        name = "a guest"
        try:
            name = dom.name()
            is_excluded = dom.UUIDString() == self.exclude_uuid
            running = bool(dom.isActive())
            trees = [ElementTree.fromstring(text) for text in domain_xmls(dom)]
        except libvirt.libvirtError as exc:
            if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                self.usage.add_unknown(f"cannot read {name}: {translate(exc).text}")
            return
        storage_refs = [ref for tree in trees for ref in references.references_of(tree)]
        if is_excluded:
            self.excluded_domain(storage_refs)
            return
        in_creation = any(creation.of_tree(tree) is not Phase.COMPLETE for tree in trees)
        for storage_ref in storage_refs:
            self.name(storage_ref, StorageUser(name, running), in_creation)

    def excluded_domain(self, storage_refs: Iterable[references.StorageReference]) -> None:
        """Add the backing files of the excluded domain's disks, which are in use while the disks
        exist.

        Without a declared format a disk is raw, as in libvirt.
        """
        for storage_ref in storage_refs if self.local else ():
            path = self.volume_path(storage_ref.volume) if storage_ref.volume else storage_ref.path
            if not path:
                continue
            chain = chains.read(path, storage_ref.format or "raw").paths
            for part in () if storage_ref.incidental else chain:
                self.declared |= identity.keys_of(part)
            for part in chain[1:]:
                self.usage.add(identity.keys_of(part), StorageUser(path, file=identity.real(path)))

    def name(
        self, storage_ref: references.StorageReference, user: StorageUser, in_creation: bool = False
    ) -> None:
        """Add a reference of a definition."""
        if storage_ref.folder and storage_ref.path:
            self.usage.folders.append((identity.real(storage_ref.path), user))
        path = storage_ref.path
        standalone = storage_ref.format in (None, *chains.STANDALONE_FORMATS)
        has_backing = not (storage_ref.chain_complete or standalone)
        if storage_ref.volume:
            self.usage.add([("volume", *storage_ref.volume)], user)
            path = self.volume_path(storage_ref.volume)
            if path is None and has_backing:
                label = "/".join(map(str, storage_ref.volume))
                self.usage.add_unknown(f"{label}, a disk of {user.name}, does not exist")
        if storage_ref.server:
            self.usage.add([("server", storage_ref.server)], user)
            if has_backing:
                label = storage_ref.server
                self.usage.add_unknown(f"{label}, a disk of {user.name}, is on a server")
        if path:
            self.chain(path, storage_ref, user, in_creation)

    def chain(
        self,
        path: str,
        storage_ref: references.StorageReference,
        user: StorageUser,
        in_creation: bool,
    ) -> None:
        if not self.local:
            self.remote_chain(path, storage_ref, user)
            return
        chain = chains.read(path, storage_ref.format)
        self.usage.add(_whole_keys(path), user)
        for part in chain.paths:
            keys = identity.keys_of(part)
            self.declared |= set() if storage_ref.incidental else keys
            self.usage.add(keys, user)
        if storage_ref.chain_complete:
            return
        if chain.unreadable or chain.broken:
            reason = chain.unreadable or chain.broken
            self.usage.add_unknown(f"cannot determine the backing files of {user.name}: {reason}")
            return
        missing = None if in_creation else chain.missing_path
        if missing and not _surely_gone(self.conn, missing):
            self.usage.add_unknown(
                f"{missing}, which {user.name} uses, does not exist: its file system may not be "
                "mounted"
            )

    def remote_chain(
        self, path: str, storage_ref: references.StorageReference, user: StorageUser
    ) -> None:
        """Add a backing chain on another machine, where only libvirt's volumes are visible."""
        backing_path: str | None = path
        format: str | None = storage_ref.format or "raw"
        visited = set[str]()
        while backing_path and backing_path not in visited:
            path = backing_path
            visited.add(path)
            self.usage.add([os.path.normpath(path)], user)
            if format in chains.STANDALONE_FORMATS:
                return
            try:
                volume_xml = volume_content.definition(self.conn.storageVolLookupByPath(path))
            except libvirt.libvirtError:
                if not storage_ref.chain_complete:
                    text = f"{path}, which {user.name} uses, is not in a storage pool"
                    self.usage.add_unknown(text)
                return
            except errors.VirtError as exc:
                self.usage.add_unknown(exc.text)
                return
            backing_path, format = volume_xml.backing_path, volume_xml.backing_format

    def volume_path(self, volume: tuple[str, str]) -> str | None:
        """Return the path of a volume that a definition refers to, or None if it is unknown."""
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
        """Add the backing files of a file or volume, which it needs even without a user."""
        if identity.keys_of(path) & self.declared:
            return  # a domain uses it with a declared format
        chain = chains.read(path)
        real = identity.real(path)
        if chain.unreadable:
            self.usage.images[real] = f"cannot determine the files of {path}: {chain.unreadable}"
        for part in chain.paths[1:]:
            self.usage.add(identity.keys_of(part), StorageUser(path, file=real))

    def pool(self, pool: libvirt.virStoragePool) -> None:
        try:
            name, active = pool.name(), pool.isActive()
            tree = ElementTree.fromstring(pool.XMLDesc(0))
            kind, target = tree.get("type"), tree.findtext("target/path")
            volumes = pool.listAllVolumes() if active else []
        except libvirt.libvirtError as exc:
            if exc.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_POOL:
                self.usage.add_unknown(f"storage pool {pool.name()}: {translate(exc).text}")
            return
        if kind in FILES and target and self.local:
            if not active and kind != "dir" and not _is_mounted(target):
                self.usage.add_unknown(f"storage pool {name} is inactive: its content is unknown")
            self.folder(target)
        elif not active and kind in (*FILES, "gluster"):
            self.usage.add_unknown(f"storage pool {name} is inactive: its content is unknown")
        for volume in volumes:
            self.volume(volume)

    def folder(self, folder: str) -> None:
        try:
            paths = bounded_io.files(folder)
        except FileNotFoundError:
            return
        except OSError as exc:
            self.usage.add_unknown(f"cannot search {folder}: {exc.strerror}")
            return
        for path in paths:
            self.image(path)

    def image_tree(self, folder: str) -> None:
        try:
            for path in bounded_io.files_below(folder):
                self.image(path)
        except bounded_io.StorageTimeout:
            pass  # the timeout is recorded
        except OSError as exc:
            self.usage.add_unknown(f"cannot search {folder}: {exc.strerror}")

    def volume(self, volume: libvirt.virStorageVol) -> None:
        """Add the backing files of a volume, from its header or from libvirt's description."""
        try:
            path = volume.path()
            file_mode = self.local and path.startswith("/") and _mode(path)
            if file_mode == _NO_ANSWER or stat.S_ISREG(file_mode):
                self.image(path)
                return
            answers.volume(volume)
            base = volume_content.definition(volume).backing_path
        except bounded_io.StorageTimeout:
            return  # the timeout is recorded
        except errors.VirtError as exc:
            self.usage.add_unknown(exc.text)
            return
        except libvirt.libvirtError as exc:
            if exc.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
                self.usage.add_unknown(translate(exc).text)
            return
        if file_mode:
            self.image(path)
        if base:
            base_keys = {key for key in keys_of(self.conn, base) if key[0] != "whole"}
            self.usage.add(base_keys, StorageUser(path, file=identity.real(path)))

    def host(self) -> None:
        """Add what this machine itself uses: mounts, swap and loop devices."""
        for mount in mounts.read():
            if not mounts.is_fuse(mount.kind):  # any user can mount one with an arbitrary source
                self.use(mount.source, f"this host, mounted at {mount.mount_point}")
        for line in mounts.lines(_SWAPS)[1:]:
            self.use(mounts.unescape(line.split(" ")[0]), "this host, as swap")
        with contextlib.suppress(OSError):
            for name in (name for name in os.listdir("/sys/block") if name.startswith("loop")):
                for path in identity.underlying_paths(f"/dev/{name}"):
                    self.use(path, f"this host, as /dev/{name}")

    def use(self, path: str, user_name: str) -> None:
        if path.startswith("/"):
            for part in chains.read(path, "raw").paths:
                self.usage.add(identity.keys_of(part), StorageUser(user_name))


def decide(
    conn: libvirt.virConnect,
    candidates: Mapping[str, str | None],
    used: Usage,
    unused: Iterable[str] = (),
) -> tuple[list[str], dict[str, str], dict[str, sharing.FileIdentity]]:
    """Decide what to delete.

    candidates: {real path: reason for keeping it, or None}. unused: paths that all other hosts
    reported as unused.

    Returns (paths to delete, {path: reason for keeping it}, {path: FileIdentity}). The identities
    belong to paths that are kept only because other hosts were not asked. A kept path can be based
    on a candidate, which is then kept as well. Paths that do not exist count as deleted.
    """
    unused_paths, identities = set(unused), dict[str, sharing.FileIdentity]()

    def keep_reason(path: str) -> str | None:
        with bounded_io.record_timeouts() as unresponsive:
            reason = used.keep_reason(keys_of(conn, path), to_delete)
            far = not reason and others_may_have(conn, path)
        if unresponsive:
            return f"{', '.join(sorted(unresponsive))} does not respond"
        other_hosts = None if path in unused_paths else far
        if other_hosts:
            identities[path] = file_identity(conn, path)
            return f"other hosts may use it ({other_hosts}) and were not asked; salt-run asks them"
        return reason

    to_delete = {path for path, reason in candidates.items() if reason is None}
    keep = {path: reason for path, reason in candidates.items() if reason}
    for path in keep:
        users = used.users_of(keys_of(conn, path), to_delete)
        if users:
            keep[path] = f"used by {confidential.sensitive_names(users)}"
    while True:
        reasons = {path: keep_reason(path) for path in to_delete if is_there(conn, path)}
        newly_kept = {path: reason for path, reason in reasons.items() if reason}
        if not newly_kept:
            return sorted(to_delete), dict(sorted(keep.items())), identities
        keep.update(newly_kept)
        to_delete -= set(newly_kept)


def domain_xmls(dom: libvirt.virDomain) -> Iterator[str]:
    """Yield every definition that libvirt keeps of a domain."""
    yield dom.XMLDesc(0)
    readers: list[Callable[[], list[str]]] = [
        lambda: [dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)],
        lambda: [item.getXMLDesc(0) for item in dom.listAllSnapshots(0)],
        lambda: [item.getXMLDesc(0) for item in dom.listAllCheckpoints(0)],
        lambda: [dom.managedSaveGetXMLDesc(0)] if dom.hasManagedSaveImage(0) else [],
    ]
    unknown = (
        *(libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_OPERATION_UNSUPPORTED),
        *(libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT, libvirt.VIR_ERR_NO_DOMAIN_CHECKPOINT),
    )
    for reader in readers:
        try:
            yield from reader()
        except libvirt.libvirtError as exc:
            if exc.get_error_code() not in unknown:
                raise


def _owner(path: str) -> int | None:
    """Return the uid of a path's owner, or None if it is unknown."""
    try:
        return bounded_io.stat(path).st_uid
    except (OSError, ValueError):
        return None


def _is_mounted(folder: str) -> bool:
    return identity.real(folder) in {mount.mount_point for mount in mounts.read()}


def _mode(path: str) -> int:
    """Return the mode of a path; 0 if it does not exist, _NO_ANSWER on a timeout."""
    try:
        return bounded_io.stat(path).st_mode
    except bounded_io.StorageTimeout:
        return _NO_ANSWER
    except (OSError, ValueError):
        return 0


def _surely_gone(conn: libvirt.virConnect, path: str) -> bool:
    """Return whether a missing file was deleted, and its file system is not merely unmounted."""
    folder = os.path.dirname(path)
    try:
        if not bounded_io.names(folder):
            return False
    except OSError:
        return False
    mounted = {mount.mount_point for mount in mounts.read()}
    return not any(
        mount_point not in mounted and f"{path}/".startswith(f"{mount_point.rstrip('/')}/")
        for mount_point in (*mounts.to_mount(), *_pool_mounts(conn))
    )


def _pool_mounts(conn: libvirt.virConnect) -> Iterator[str]:
    """Yield the mount points of inactive storage pools."""
    for pool in conn.listAllStoragePools():
        with contextlib.suppress(libvirt.libvirtError):
            tree = ElementTree.fromstring(pool.XMLDesc(0))
            if tree.get("type") in ("fs", "netfs", "vstorage") and not pool.isActive():
                yield tree.findtext("target/path") or "/"
