"""The master's store of minion keys, as the running version of Salt keeps it.

Salt 3008 reaches it through ``salt.cache`` with the driver ``keys.cache_driver``; 3006 and
3007 have one file a key below ``pki_dir``.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from typing import Any

import salt.cache
import salt.key
import salt.utils.event
import salt.utils.verify
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from saltvirt import errors, names
from saltvirt.fleet import private, target
from saltvirt.fleet.pillars import Pillars, fingerprint
from saltvirt.system import atomic_file

_FOLDERS = {"accepted": "minions", "pending": "minions_pre", "rejected": "minions_rejected"}


# one key in PEM and nothing around it; the largest that Salt makes is far smaller
_PEM = re.compile(
    r"-----BEGIN (RSA )?PUBLIC KEY-----\n[A-Za-z0-9+/=\n]{1,8000}\n-----END (RSA )?PUBLIC KEY-----"
)
_FEWEST_BITS = 2048


def _text(pem: str) -> str:
    """A public key as Salt compares it."""
    return "\n".join(str(pem).strip().splitlines())


def clean(pem: str) -> str:
    """Return a public key as Salt compares it.

    Raises KeyRefused unless it is a key that Salt would create: RSA of 2048 bits or more, with no
    other content.
    """
    text = _text(pem)
    try:
        if not _PEM.fullmatch(text):
            raise ValueError
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise errors.KeyRefused("the submitted minion key is not a public key") from exc
    if not isinstance(key, RSAPublicKey) or key.key_size < _FEWEST_BITS:
        raise errors.KeyRefused(
            f"the submitted minion key is not an RSA key of {_FEWEST_BITS} bits or more"
        )
    return text


class _Files:
    """The store of 3006 and 3007: the folder is the state, the file name is the minion id."""

    def __init__(self, opts: dict[str, Any]) -> None:
        cluster = opts.get("cluster_id") is not None and opts.get("cluster_pki_dir")
        self._root = cluster or opts["pki_dir"]
        self._user = opts.get("user")

    def _path(self, state: str, name: str) -> str:
        return os.path.join(self._root, _FOLDERS[state], name)

    def fetch(self, name: str) -> dict[str, str] | None:
        for state in ("rejected", "pending", "accepted"):
            with (
                contextlib.suppress(FileNotFoundError),
                open(self._path(state, name), encoding="utf-8") as file,
            ):
                return {"state": state, "pub": file.read()}
        return None

    def store(self, name: str, pub: str) -> None:
        target = self._path("accepted", name)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        # Salt ignores names with a leading dot
        part = atomic_file.unique_part(target)
        os.close(atomic_file.stage(part, pub.encode(), mode=0o640))
        with contextlib.suppress(KeyError, PermissionError):
            os.chown(part, pwd.getpwnam(self._user or "root").pw_uid, -1)
        atomic_file.rename(part, target)
        for state in ("pending", "rejected"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(state, name))


class _Driver:
    """The store of 3008: one bank, with the state beside the key."""

    def __init__(self, opts: dict[str, Any]) -> None:
        self._cache = salt.cache.Cache(opts, driver=opts["keys.cache_driver"])

    def fetch(self, name: str) -> dict[str, str] | None:
        entry = self._cache.fetch("keys", name)
        return entry if entry and entry.get("pub") else None

    def store(self, name: str, pub: str) -> None:
        self._cache.store("keys", name, {"state": "accepted", "pub": pub})


class KeyStore:
    """Accept and delete minion keys. opts: the master's options."""

    def __init__(self, opts: dict[str, Any]) -> None:
        self._opts = opts
        self._accepted = os.path.join(opts["pki_dir"], "virt-accepted")
        self._store: _Driver | _Files = (
            _Driver(opts) if opts.get("keys.cache_driver") else _Files(opts)
        )

    def status(self, name: str) -> str | None:
        """Return ``accepted``, ``pending``, ``rejected``, or None for an id without a key."""
        entry = self._store.fetch(names.guest(name))
        return entry["state"] if entry else None

    def public(self, name: str) -> str | None:
        """Return the public key (PEM) of an id in any state, or None."""
        entry = self._store.fetch(names.guest(name))
        return entry["pub"] if entry else None

    def accepted(self, name: str) -> str | None:
        """Return the accepted public key (PEM) of an id, or None."""
        entry = self._store.fetch(names.guest(name))
        return entry["pub"] if entry and entry["state"] == "accepted" else None

    def accept(
        self,
        name: str,
        pub_pem: str,
        replace: bool = False,
        host: str = "",
        pillar: dict[str, Any] | None = None,
    ) -> bool:
        """Accept exactly this key for exactly this id, and fire Salt's ``salt/key`` event.

        A pending key of the id is removed. host: the hypervisor that created the guest, to which
        the key is bound. replace: also replace the key that was accepted for a guest of that host.
        pillar: the pillar of the guest. Everything that belongs to the key is written first: a
        crash leaves no key without it. Returns whether the key was not accepted before. Raises
        KeyRefused, InvalidInput.
        """
        target.refuse_host(self._opts, names.guest(name))
        pub = clean(pub_pem)
        entry = self._store.fetch(name)
        replace = replace and self.host_of(name) == host
        if entry and entry["state"] == "accepted" and _text(entry["pub"]) == pub:
            self._store_pillar(name, pub, pillar)
            return False
        if entry and entry["state"] != "pending" and not replace:
            raise errors.KeyRefused(
                f"the master already has another key for {name} ({entry['state']}): if that "
                f"machine no longer exists, run salt-key -d {name}"
            )
        self._store_pillar(name, pub, pillar)
        self._record(name, host, pub)
        target.forget(self._opts, name)
        self._store.store(name, pub)
        self._fire("accept", name, pub)
        return True

    def _store_pillar(self, name: str, pub: str, pillar: dict[str, Any] | None) -> None:
        if pillar is not None:
            Pillars(self._opts).store(name, pub, pillar)

    def _record(self, name: str, host: str, pub: str) -> None:
        """Record that exactly this key was accepted here for a guest of the host."""
        private.write(os.path.join(self._accepted, name), f"{host}\n{fingerprint(pub)}")

    def of_host(self, host: str) -> str | None:
        """Return the accepted public key (PEM) of a minion that is not a guest, or None."""
        entry = self._store.fetch(host) if salt.utils.verify.valid_id(self._opts, host) else None
        return entry["pub"] if entry and entry["state"] == "accepted" else None

    def guest_ids(self) -> list[str]:
        """Return the ids whose keys were accepted here for guests and still are, sorted."""
        with contextlib.suppress(FileNotFoundError):
            ids = [n for n in os.listdir(self._accepted) if not n.startswith(".")]
            return sorted(n for n in ids if self.accepted(n) and self.host_of(n) is not None)
        return []

    def host_of(self, name: str) -> str | None:
        """Return the hypervisor whose guest has the key that was accepted here.

        Returns "" for a key that was accepted for no host, None for a key that was not accepted
        here.
        """
        try:
            with open(os.path.join(self._accepted, names.guest(name)), encoding="utf-8") as file:
                host, _, mark = file.read().partition("\n")
        except FileNotFoundError:
            return None
        return host if mark == fingerprint(self.accepted(name) or "") else None

    def hosts(self) -> set[str]:
        """Return the hypervisors to which the accepted keys of guests are bound."""
        return set(filter(None, map(self.host_of, self.guest_ids())))

    def rebind(self, name: str, old: str, new: str) -> None:
        """Bind the key of a guest to the host to which the guest has moved."""
        pub = self.accepted(name)
        if pub and self.host_of(name) == old:
            self._record(name, new, pub)

    def retain_reason(self, name: str, host: str) -> str | None:
        """Return why the key of a guest removed from this host is retained; None: delete it."""
        bound_host = self.host_of(name)
        if bound_host is None:
            return "it was not accepted here for a guest, and another machine may use it"
        if bound_host not in ("", host):
            return f"it was accepted for a guest of {bound_host}, which may use it"
        return None

    def _forget(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._accepted, name))

    def delete(self, name: str, pub_pem: str | None = None) -> bool:
        """Delete the key of an id, and what the master stores about that minion.

        pub_pem: only if it is this key. Returns whether a key was deleted. Raises KeyRefused for a
        name that virt:hosts reserves for hypervisors.
        """
        entry = self._store.fetch(names.guest(name))
        if not entry or (pub_pem and _text(entry["pub"]) != _text(pub_pem)):
            return False
        try:
            target.refuse_host(self._opts, name)
        except errors.InvalidInput as exc:
            raise errors.KeyRefused(
                f"cannot delete the key of {name}: it belongs to a hypervisor"
            ) from exc
        with salt.key.Key(self._opts) as keys:
            keys.delete_key(match_dict={_FOLDERS[entry["state"]]: [name]})
        if self._store.fetch(name):
            raise errors.OperationFailed(f"could not delete the key of {name}: check salt-key")
        self._forget(name)
        Pillars(self._opts).remove(name)
        return True

    def _fire(self, act: str, name: str, pub: str) -> None:
        data: dict[str, Any] = {"result": True, "act": act, "id": name}
        if self._opts.get("cluster_id") is not None:
            data["pub"] = pub  # the other masters of a cluster store it too
        role = self._opts.get("__role", "master")
        with salt.utils.event.get_event(
            role, self._opts["sock_dir"], opts=self._opts, listen=False
        ) as event:
            event.fire_event(data, salt.utils.event.tagify(prefix="key"))
