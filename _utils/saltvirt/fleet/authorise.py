"""Permissions that the master writes: this host may hand in the key of this guest, once.

One file below ``pki_dir/virtkeys/<host>/<guest>`` holds the second until which it is good.
"""

import contextlib
import logging
import os
import secrets
import time

from saltvirt import errors, names

LIFETIME_S = 600

log = logging.getLogger(__name__)


class Authorisations:
    """Grants, takes back and redeems permissions. opts: the master's options."""

    def __init__(self, opts):
        self._root = os.path.join(opts["pki_dir"], "virtkeys")

    def _path(self, host, name):
        if not host or "/" in host or host.startswith("."):
            raise errors.InvalidInput(f"{host!r} is no minion id")
        return os.path.join(self._root, host, names.guest(name))

    def grant(self, host, name, lifetime_s=LIFETIME_S):
        """Lets ``host`` hand in one key for ``name`` within ``lifetime_s`` seconds."""
        path = self._path(host, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        part = os.path.join(self._root, f".{secrets.token_hex(8)}")
        with open(part, "w", encoding="utf-8", opener=_private) as file:
            file.write(str(int(time.time() + lifetime_s)))
        os.replace(part, path)

    def revoke(self, host, name):
        """Takes a permission back; True when there was one."""
        try:
            os.unlink(self._path(host, name))
        except FileNotFoundError:
            return False
        return True

    def expired(self):
        """(host, guest) of the permissions that nobody used in time."""
        for host in sorted(os.listdir(self._root)) if os.path.isdir(self._root) else ():
            folder = os.path.join(self._root, host)
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                if not self._good(os.path.join(folder, name)):
                    yield host, name

    @staticmethod
    def _good(path):
        """True while the permission in the file is not over."""
        try:
            with open(path, encoding="utf-8") as file:
                return int(file.read()) >= time.time()
        except (ValueError, FileNotFoundError):
            return False

    def redeem(self, host, name):
        """True when the host has a permission for the guest, which is then used up."""
        taken = os.path.join(self._root, f".{secrets.token_hex(8)}")
        try:
            os.rename(self._path(host, name), taken)  # of many at once, one succeeds
        except FileNotFoundError:
            return False
        try:
            return self._good(taken)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(taken)


def _private(path, flags):
    return os.open(path, flags, 0o600)


def hand_in(opts, store, host, name, pub_pem):
    """What the master does when a host hands in a guest's key: True when it is accepted.

    Everything but ``host`` comes from the minion and is believed only as far as the
    permission goes.
    """
    try:
        if not Authorisations(opts).redeem(host, name):
            log.warning("%s handed in a key for %r without a permission", host, name)
            return False
        store.accept(name, pub_pem)
    except errors.VirtError as exc:
        log.warning("%s handed in a key for %r: %s", host, name, exc)
        return False
    return True
