"""The master's store of minion keys, as the running version of Salt keeps it.

Salt 3008 reaches it through ``salt.cache`` with the driver ``keys.cache_driver``; 3006 and
3007 have one file a key below ``pki_dir``.
"""

import contextlib
import os
import pwd
import tempfile

import salt.cache
import salt.key
import salt.utils.event
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from saltvirt import errors, names
from saltvirt.fleet.pillars import Pillars

_FOLDERS = {
    "accepted": "minions",
    "pending": "minions_pre",
    "rejected": "minions_rejected",
}


def clean(pem):
    """A public key as Salt compares it. Raises KeyRefused when it is none."""
    text = "\n".join(str(pem).strip().splitlines())
    try:
        load_pem_public_key(text.encode())
    except ValueError as exc:
        raise errors.KeyRefused("what was handed over as a minion's key is no public key") from exc
    return text


class _Files:
    """3006 and 3007: the folder is the state, the file's name the minion id."""

    def __init__(self, opts):
        cluster = opts.get("cluster_id") is not None and opts.get("cluster_pki_dir")
        self._root = cluster or opts["pki_dir"]
        self._user = opts.get("user")

    def _path(self, state, name):
        return os.path.join(self._root, _FOLDERS[state], name)

    def fetch(self, name):
        for state in ("rejected", "pending", "accepted"):
            with (
                contextlib.suppress(FileNotFoundError),
                open(self._path(state, name), encoding="utf-8") as file,
            ):
                return {"state": state, "pub": file.read()}
        return None

    def store(self, name, pub):
        target = self._path("accepted", name)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        # a name with a leading dot is no key to Salt
        fd, part = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".virt-")
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(pub)
            os.fchmod(fd, 0o640)
            with contextlib.suppress(KeyError, PermissionError):
                os.fchown(fd, pwd.getpwnam(self._user or "root").pw_uid, -1)
        os.replace(part, target)
        for state in ("pending", "rejected"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(state, name))


class _Driver:
    """3008: one bank, with the state beside the key."""

    def __init__(self, opts):
        self._cache = salt.cache.Cache(opts, driver=opts["keys.cache_driver"])

    def fetch(self, name):
        found = self._cache.fetch("keys", name)
        return found if found and found.get("pub") else None

    def store(self, name, pub):
        self._cache.store("keys", name, {"state": "accepted", "pub": pub})


class KeyStore:
    """Accepts and takes back minion keys. opts: the master's options."""

    def __init__(self, opts):
        self._opts = opts
        self._accepted = os.path.join(opts["pki_dir"], "virt-accepted")
        self._store = _Driver(opts) if opts.get("keys.cache_driver") else _Files(opts)

    def status(self, name):
        """``accepted``, ``pending``, ``rejected``, or None for an id that has no key."""
        found = self._store.fetch(names.guest(name))
        return found["state"] if found else None

    def public(self, name):
        """The public key (PEM) of an id, whatever its state, or None."""
        found = self._store.fetch(names.guest(name))
        return found["pub"] if found else None

    def accepted(self, name):
        """The public key (PEM) that was accepted for an id, or None."""
        found = self._store.fetch(names.guest(name))
        return found["pub"] if found and found["state"] == "accepted" else None

    def accept(self, name, pub_pem, replace=False):
        """Accepts exactly this key for exactly this id, and fires Salt's ``salt/key`` event.

        A pending key of the id goes: it is another one's, or this one. replace: also take the
        place of another accepted or of a rejected key.
        Returns True when it was not accepted before. Raises KeyRefused, InvalidInput.
        """
        names.guest(name)
        pub = clean(pub_pem)
        found = self._store.fetch(name)
        same = bool(found) and "\n".join(found["pub"].strip().splitlines()) == pub
        if same and found["state"] == "accepted":
            return False
        if found and found["state"] != "pending" and not replace:
            raise errors.KeyRefused(
                f"the master has another key of {name}, which is {found['state']}: if that "
                f"machine is gone, remove its key with salt-key -d {name}"
            )
        self._store.store(name, pub)
        self._remember(name)
        self._fire("accept", name, pub)
        return True

    def ours(self):
        """The ids whose keys were accepted here, for a guest, and are still accepted; sorted."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(n for n in os.listdir(self._accepted) if self.status(n) == "accepted")
        return []

    def _remember(self, name):
        os.makedirs(self._accepted, mode=0o700, exist_ok=True)
        with open(os.path.join(self._accepted, name), "w", encoding="utf-8"):
            pass

    def _forget(self, name):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._accepted, name))

    def delete(self, name, pub_pem=None):
        """Takes back the key of an id, and what the master remembers of that minion.

        pub_pem: only if it is this key. Returns True when there was one to delete.
        """
        found = self._store.fetch(names.guest(name))
        if not found or (pub_pem and clean(found["pub"]) != clean(pub_pem)):
            return False
        with salt.key.Key(self._opts) as keys:
            keys.delete_key(match_dict={_FOLDERS[found["state"]]: [name]})
        if self._store.fetch(name):
            raise errors.OperationFailed(f"the key of {name} could not be deleted: see salt-key")
        self._forget(name)
        Pillars(self._opts).remove(name)
        return True

    def _fire(self, act, name, pub):
        data = {"result": True, "act": act, "id": name}
        if self._opts.get("cluster_id") is not None:
            data["pub"] = pub  # the other masters of a cluster store it too
        role = self._opts.get("__role", "master")
        with salt.utils.event.get_event(
            role, self._opts["sock_dir"], opts=self._opts, listen=False
        ) as event:
            event.fire_event(data, salt.utils.event.tagify(prefix="key"))
