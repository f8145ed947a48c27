"""One-time permissions of the master: a host may submit the key of a guest.

The file ``pki_dir/virtkeys/<host>/<guest>`` contains the time until which the permission is valid,
and the pillar of the guest. The permission of a runner's operation is valid only while the
operation holds a lock on the file. A killed operation may leave secrets in the file, so every
request for a permission, and every grant, removes such files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from saltvirt import errors, names
from saltvirt.fleet import private, syndic, target
from saltvirt.fleet.keys import KeyStore
from saltvirt.revert import UndoStack
from saltvirt.schema import Message, optional
from saltvirt.system import atomic_file, file_lock

if TYPE_CHECKING:
    from saltvirt.fleet.client import Fleet

LIFETIME_S = 600
# the maximum for the permission of an operation, which ends with the operation
_LONGEST_S = 24 * 3600
# a file that is being written or redeemed exists for less
_INSTANT_S = 60

# Salt's setting minimum_auth_version: below this value a minion may impersonate another
# (CVE-2025-62349)
_AUTH_VERSION = 3

log = logging.getLogger(__name__)


def refuse_unknown_senders(opts: Mapping[str, Any]) -> None:
    """Raise Unsupported if this master does not verify which minion requests a pillar."""
    version = opts.get("minimum_auth_version", 0)
    if not isinstance(version, int) or version < _AUTH_VERSION:
        raise errors.Unsupported(
            f"minimum_auth_version is {version!r} on this master: a minion may ask in the name of "
            "another, so the master accepts no keys of guests and issues no certificates; set it "
            f"to {_AUTH_VERSION} and restart the master (if this Salt has no such setting, update "
            "Salt)"
        )


def refuse_others(opts: dict[str, Any], host: str, name: str) -> None:
    """Raise Unsupported for a host that submits the guest's key to another master."""
    if syndic.below(opts, host):
        raise errors.Unsupported(
            f"{host} is below a syndic and submits the key of {name} to its own master: run this "
            "on that master, or use seed=False and no secret arguments"
        )


@dataclass(frozen=True)
class Permission(Message):
    """The content of the file.

    expires_s: the end of its validity, in seconds since 1970. pillar: the pillar of the guest.
    replace: the key replaces the accepted key of this host's guest. process_bound: the permission
    belongs to an operation, and is valid only while the operation locks the file. secret: what the
    host may request in the meantime; see fleet.secret.
    """

    expires_s: float
    pillar: dict[str, Any] = optional({})
    replace: bool = optional(False)
    process_bound: bool = optional(False)
    secret: dict[str, Any] = optional({})


class Authorizations:
    """Grant, revoke and redeem permissions. opts: the master's options."""

    def __init__(self, opts: dict[str, Any]) -> None:
        self._opts = opts
        self._root = os.path.join(opts["pki_dir"], "virtkeys")

    def _path(self, host: str, name: str) -> str:
        if not host or "/" in host or host.startswith("."):
            raise errors.InvalidInput(f"{host!r} is not a minion id")
        return os.path.join(self._root, host, names.guest(name))

    def grant(
        self,
        host: str,
        name: str,
        lifetime_s: float = LIFETIME_S,
        pillar: dict[str, Any] | None = None,
        replace: bool = False,
    ) -> None:
        """Let ``host`` submit one key for ``name`` within ``lifetime_s`` seconds.

        pillar, replace: see Permission. Raises InvalidInput for a name that virt:hosts reserves,
        Unsupported if Salt does not verify which minion submits it.
        """
        permission = Permission(time.time() + lifetime_s, pillar or {}, replace)
        os.close(self._write(host, name, permission))

    def _write(self, host: str, name: str, permission: Permission) -> int:
        """Write a new permission. Return its file, open and locked."""
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
        """Grant a permission that ends with the block, or with the process.

        pillar, replace, secret: see Permission.
        """
        expires_s = time.time() + _LONGEST_S
        permission = Permission(
            expires_s, pillar or {}, replace, process_bound=True, secret=secret or {}
        )
        handle = self._write(host, name, permission)
        try:
            yield
        finally:
            self.revoke(host, name)
            os.close(handle)

    def revoke(self, host: str, name: str) -> bool:
        """Revoke a permission. Return whether it existed."""
        try:
            os.unlink(self._path(host, name))
        except FileNotFoundError:
            return False
        return True

    def hosts(self) -> set[str]:
        """Return the ids of all hosts that have ever had a permission."""
        ids = os.listdir(self._root) if os.path.isdir(self._root) else ()
        return {host for host in ids if not host.startswith(".")}

    def expired(self) -> Iterator[tuple[str, str]]:
        """Yield (host, guest) of the permissions that expired without being used."""
        for host in sorted(os.listdir(self._root)) if os.path.isdir(self._root) else ():
            folder = os.path.join(self._root, host)
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                if not name.startswith(".") and not self._read(os.path.join(folder, name)):
                    yield host, name

    @staticmethod
    def _read(path: str) -> Permission | None:
        """Return the Permission in the file, or None if it is no longer valid."""
        try:
            with open(path, encoding="utf-8") as file:
                permission = Permission.from_answer(json.load(file), path)
                remaining_s = permission.expires_s - time.time()
                # the permission of an operation ends with it, even if the clock was set back
                good = not _free(file) if permission.process_bound else remaining_s <= _LONGEST_S
            return permission if good and remaining_s >= 0 else None
        except (ValueError, errors.BadAnswer, RecursionError, FileNotFoundError):
            return None

    def sweep(self) -> None:
        """Remove the permissions and incomplete files of operations that were killed."""
        for folder, _, filenames in os.walk(self._root):
            for path in (os.path.join(folder, name) for name in filenames):
                with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                    if _free(file) and _is_orphaned(path, file):
                        os.unlink(path)

    def secret(self, host: str, name: str) -> dict[str, Any]:
        """Return the secrets for the host's operation in progress; {} if there is none."""
        self.sweep()
        permission = self._read(self._path(host, name))
        return permission.secret if permission else {}

    def redeem(self, host: str, name: str) -> Permission | None:
        """Redeem the host's Permission for the guest. Return it, or None."""
        self.sweep()
        with (
            contextlib.suppress(FileNotFoundError),
            atomic_file.claim(self._path(host, name)) as claimed_path,
        ):
            return self._read(claimed_path)
        return None


def _is_orphaned(path: str, file: BinaryIO) -> bool:
    """Return whether an unlocked file belongs to an operation that was killed."""
    if os.path.basename(path).startswith("."):  # exists only for a moment
        return time.time() - os.fstat(file.fileno()).st_mtime > _INSTANT_S
    with contextlib.suppress(ValueError, errors.BadAnswer, RecursionError):
        return Permission.from_answer(json.load(file), path).process_bound
    return False


def _free(file: IO[Any]) -> bool:
    """Return whether no process holds the lock of a file."""
    return file_lock.lock(file, shared=True)


@contextlib.contextmanager
def key_permission(
    fleet: Fleet,
    host: str,
    name: str,
    undo: UndoStack,
    pillar: dict[str, Any] | None = None,
    secret: dict[str, Any] | None = None,
) -> Iterator[None]:
    """Let the host submit the key of the guest that it creates in the block.

    secret: what the host may request to create the guest. A submitted key is deleted if the block
    fails, and when ``undo`` runs later.
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
    """Accept a guest's key that a host submits. Return whether the key was accepted.

    Everything except ``host`` comes from the minion, and is trusted only as far as the permission
    allows.
    """
    try:
        refuse_unknown_senders(opts)
        permission = Authorizations(opts).redeem(host, name)
        if not permission:
            log.warning("%s submitted a key for %r without a permission", host, name)
            return False
        store.accept(name, pub_pem, permission.replace, host, pillar=permission.pillar)
    except errors.VirtError as exc:
        log.warning("%s submitted a key for %r: %s", host, name, exc)
        return False
    return True
