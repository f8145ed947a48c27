"""Permissions that the master writes: this host may hand in the key of this guest, once.

One file below ``pki_dir/virtkeys/<host>/<guest>`` holds the second until which it is good, and
the pillar that the guest shall have. That of an operation of the runner is good no longer than
the operation: it holds a lock on the file. What an operation that was killed left of it may be
secret: whoever next asks for a permission, or gives one, removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from saltvirt import errors, names
from saltvirt.fleet import private, syndic, target
from saltvirt.fleet.keys import KeyStore
from saltvirt.revert import UndoStack
from saltvirt.schema import Message, optional

if TYPE_CHECKING:
    from saltvirt.fleet.client import Fleet

LIFETIME_S = 600
# of an operation's own, which ends with it
_LONGEST_S = 24 * 3600
# a file that is being written, or used up, is there for less
_INSTANT_S = 60

# Salt's setting minimum_auth_version: below this a minion may ask in the name of another
# (CVE-2025-62349)
_AUTH_VERSION = 3

log = logging.getLogger(__name__)


def refuse_unknown_senders(opts: Mapping[str, Any]) -> None:
    """Raises Unsupported where this master's Salt does not prove which minion asks for a pillar."""
    version = opts.get("minimum_auth_version", 0)
    if not isinstance(version, int) or version < _AUTH_VERSION:
        raise errors.Unsupported(
            f"minimum_auth_version is {version!r} on this master: a minion may ask in the name of "
            "another, so no key of a guest is taken and no certificate is given; set it to "
            f"{_AUTH_VERSION} and restart the master (an older Salt has no such setting: update "
            "Salt)"
        )


def refuse_others(opts: dict[str, Any], host: str, name: str) -> None:
    """Raises Unsupported for a host that hands the guest's key to another master."""
    if syndic.below(opts, host):
        raise errors.Unsupported(
            f"{host} is below a syndic and hands the key of {name} to its own master: do it there, "
            "or with seed=False and nothing that is secret"
        )


@dataclass(frozen=True)
class Permission(Message):
    """What is in its file. until: the second of the epoch until which it is good. pillar: what the
    guest gets with its key. replace: the key takes the place of the one that was accepted for this
    host's guest. held: it is an operation's, and good only while that holds the file's lock.
    secret: what the host may ask for meanwhile, see fleet.secret."""

    until: float
    pillar: dict[str, Any] = optional({})
    replace: bool = optional(False)
    held: bool = optional(False)
    secret: dict[str, Any] = optional({})


class Authorizations:
    """Grants, takes back and redeems permissions. opts: the master's options."""

    def __init__(self, opts: dict[str, Any]) -> None:
        self._opts = opts
        self._root = os.path.join(opts["pki_dir"], "virtkeys")

    def _path(self, host: str, name: str) -> str:
        if not host or "/" in host or host.startswith("."):
            raise errors.InvalidInput(f"{host!r} is no minion id")
        return os.path.join(self._root, host, names.guest(name))

    def grant(
        self,
        host: str,
        name: str,
        lifetime_s: float = LIFETIME_S,
        pillar: dict[str, Any] | None = None,
        replace: bool = False,
    ) -> None:
        """Lets ``host`` hand in one key for ``name`` within ``lifetime_s`` seconds.

        pillar, replace: see Permission. Raises InvalidInput for a name that virt:hosts keeps,
        Unsupported where Salt does not prove who hands it in.
        """
        permission = Permission(time.time() + lifetime_s, pillar or {}, replace)
        os.close(self._write(host, name, permission))

    def _write(self, host: str, name: str, permission: Permission) -> int:
        """The open file of a new permission, which is locked."""
        refuse_unknown_senders(self._opts)
        self.sweep()
        path = self._path(host, target.refuse_host(self._opts, name))
        return private.write_locked(path, json.dumps(permission.to_answer(), default=str))

    @contextlib.contextmanager
    def temporary(
        self,
        host: str,
        name: str,
        pillar: dict[str, Any] | None = None,
        replace: bool = False,
        secret: dict[str, Any] | None = None,
    ) -> Iterator[None]:
        """Such a permission for the block; it ends with it, and with the process.

        pillar, replace, secret: see Permission.
        """
        expires_s = time.time() + _LONGEST_S
        permission = Permission(expires_s, pillar or {}, replace, held=True, secret=secret or {})
        handle = self._write(host, name, permission)
        try:
            yield
        finally:
            self.revoke(host, name)
            os.close(handle)

    def revoke(self, host: str, name: str) -> bool:
        """Takes a permission back; True when there was one."""
        try:
            os.unlink(self._path(host, name))
        except FileNotFoundError:
            return False
        return True

    def hosts(self) -> set[str]:
        """The ids of all hosts that ever had a permission, as a set."""
        ids = os.listdir(self._root) if os.path.isdir(self._root) else ()
        return {host for host in ids if not host.startswith(".")}

    def expired(self) -> Iterator[tuple[str, str]]:
        """(host, guest) of the permissions that nobody used in time."""
        for host in sorted(os.listdir(self._root)) if os.path.isdir(self._root) else ():
            folder = os.path.join(self._root, host)
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                if not name.startswith(".") and not self._read(os.path.join(folder, name)):
                    yield host, name

    @staticmethod
    def _read(path: str) -> Permission | None:
        """The Permission in the file, None when it is over."""
        try:
            with open(path, encoding="utf-8") as file:
                permission = Permission.from_answer(json.load(file), path)
                remaining_s = permission.until - time.time()
                # what is held ends with its operation, also where the clock was set back
                good = not _free(file) if permission.held else remaining_s <= _LONGEST_S
            return permission if good and remaining_s >= 0 else None
        except (ValueError, errors.BadAnswer, RecursionError, FileNotFoundError):
            return None

    def sweep(self) -> None:
        """Removes what operations that were killed have left: their permissions, and files that
        they were about to write."""
        for folder, _, filenames in os.walk(self._root):
            for path in (os.path.join(folder, name) for name in filenames):
                with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                    if _free(file) and _is_orphaned(path, file):
                        os.unlink(path)

    def secret(self, host: str, name: str) -> dict[str, Any]:
        """What the host may know for the operation that is under way; {} when there is none."""
        self.sweep()
        permission = self._read(self._path(host, name))
        return permission.secret if permission else {}

    def redeem(self, host: str, name: str) -> Permission | None:
        """The Permission that the host has for the guest, which is then used up, or None."""
        self.sweep()
        claimed_path = os.path.join(self._root, f".{secrets.token_hex()}")
        try:
            os.rename(self._path(host, name), claimed_path)  # of many at once, one succeeds
        except FileNotFoundError:
            return None
        try:
            return self._read(claimed_path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(claimed_path)


def _is_orphaned(path: str, file: BinaryIO) -> bool:
    """Whether a file that nobody holds is of an operation that was killed."""
    if os.path.basename(path).startswith("."):  # it is there for an instant
        return time.time() - os.fstat(file.fileno()).st_mtime > _INSTANT_S
    with contextlib.suppress(ValueError, errors.BadAnswer, RecursionError):
        return Permission.from_answer(json.load(file), path).held
    return False


def _free(file: IO[Any]) -> bool:
    """True when nobody holds the lock of a file: whoever did is gone."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def key_permission(
    fleet: Fleet,
    host: str,
    name: str,
    undo: UndoStack,
    pillar: dict[str, Any] | None = None,
    secret: dict[str, Any] | None = None,
) -> Iterator[None]:
    """Lets the host hand in the key of the guest that it makes in the block.

    secret: what it may ask for to make it.
    A key that came in goes again when the block fails, and with ``undo``, a Revert, later.
    """
    refuse_others(fleet.opts, host, name)
    keys = KeyStore(fleet.opts)
    before = keys.accepted(name)

    def take_back() -> None:
        now = keys.accepted(name)
        if now and now != before:
            keys.delete(name, now)

    with UndoStack() as rollback:
        rollback.push(f"take back the key of {name}", take_back)
        with Authorizations(fleet.opts).temporary(host, name, pillar, secret=secret):
            yield
        rollback.success()
    undo.push(f"take back the key of {name}", take_back)


def submit_key(opts: dict[str, Any], store: KeyStore, host: str, name: str, pub_pem: str) -> bool:
    """What the master does when a host hands in a guest's key: True when it is accepted.

    Everything but ``host`` comes from the minion and is believed only as far as the
    permission goes.
    """
    try:
        refuse_unknown_senders(opts)
        permission = Authorizations(opts).redeem(host, name)
        if not permission:
            log.warning("%s handed in a key for %r without a permission", host, name)
            return False
        store.accept(name, pub_pem, permission.replace, host, pillar=permission.pillar)
    except errors.VirtError as exc:
        log.warning("%s handed in a key for %r: %s", host, name, exc)
        return False
    return True
