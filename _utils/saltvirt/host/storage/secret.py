"""libvirt secrets with the passwords that pools need for their source.

The secrets are private: libvirt does not return their values. A state must still detect a changed
password, so the description of the secret contains an HMAC of it, with a key that only root on this
host can read.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.design import secret
from saltvirt.host.connection import libvirt, translated
from saltvirt.spec.pool import PoolAuthSpec
from saltvirt.system import atomic_file, paths
from saltvirt.xml.storage.secret import Secret

if TYPE_CHECKING:
    from saltvirt.revert import UndoStack
    from saltvirt.spec.pool import PoolSpec
    from saltvirt.xml.storage.pool import Pool

KEY = f"{paths.STATE}/secret-key"


def find(conn: libvirt.virConnect, secret_xml: Secret) -> libvirt.virSecret | None:
    """Return the virSecret with the usage of this Secret, or None."""
    kinds = {
        "ceph": libvirt.VIR_SECRET_USAGE_TYPE_CEPH,
        "iscsi": libvirt.VIR_SECRET_USAGE_TYPE_ISCSI,
    }
    kind = kinds[secret_xml.usage_type or ""]
    try:
        return conn.secretLookupByUsage(kind, secret_xml.usage or "")
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_SECRET:
            raise
        return None


def has_password(spec: PoolSpec) -> bool:
    """Return whether the PoolSpec has a password for which a secret is created."""
    return bool(spec.source_auth and spec.source_auth.password)


def uuid_for_pool(conn: libvirt.virConnect, spec: PoolSpec) -> str | None:
    """Return the UUID of the secret for this PoolSpec's password, or None."""
    existing = find(conn, secret.for_pool(spec)) if has_password(spec) else None
    return existing.UUIDString() if existing is not None else None


def store_for_pool(conn: libvirt.virConnect, spec: PoolSpec, undo: UndoStack) -> str | None:
    """Create or update the secret with the PoolSpec's password; its UUID.

    undo: reverts the creation.
    """
    if not has_password(spec):
        return None
    value, secret_xml = _value(spec), secret.for_pool(spec, _mark(spec, _key(make=True)))
    stored = find(conn, secret_xml)
    with translated(f"store the secret {secret_xml.usage}"):
        if stored is None:
            stored = conn.secretDefineXML(secret_xml.tostring())
            undo.push(f"remove the secret {secret_xml.usage}", stored.undefine)
        elif Secret.fromstring(stored.XMLDesc(0)).description != secret_xml.description:
            secret_xml.uuid = stored.UUIDString()
            conn.secretDefineXML(secret_xml.tostring())
        stored.setValue(value)
    return stored.UUIDString()


def is_stored(conn: libvirt.virConnect, spec: PoolSpec) -> bool:
    """Return whether the secret contains the PoolSpec's password."""
    secret_xml: Secret = secret.for_pool(spec, _mark(spec, _key()))
    stored = find(conn, secret_xml)
    stored_mark = Secret.fromstring(stored.XMLDesc(0)).description if stored is not None else None
    return stored_mark == secret_xml.description


def forget_for_pool(conn: libvirt.virConnect, pool: Pool) -> None:
    """Remove the secret that a Pool refers to, if it was created for this pool only."""
    source = pool.source
    if not source.auth_uuid and not source.auth_usage:
        return
    kind = "ceph" if source.auth_type == "ceph" else "iscsi"
    stored = find(conn, secret.build(kind, f"pool_{pool.name}"))
    if stored is not None and source.auth_uuid in (None, stored.UUIDString()):
        with translated(f"remove the secret pool_{pool.name}"):
            stored.undefine()


def _value(spec: PoolSpec) -> bytes:
    """Return the value to store. Ceph keys are given in base64."""
    auth = spec.source_auth or PoolAuthSpec()
    password = str(auth.password)
    if auth.type != "ceph":
        return password.encode()
    try:
        return base64.b64decode(password, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise errors.InvalidInput(
            f"pool {spec.name}: the password of a Ceph user must be its base64 key"
        ) from exc


def _mark(spec: PoolSpec, key: bytes | None) -> str:
    """Return the HMAC of the PoolSpec's password; a placeholder without a key."""
    return hmac.new(key, _value(spec), hashlib.sha256).hexdigest()[:32] if key else "-"


def _key(make: bool = False) -> bytes | None:
    """Return this host's HMAC key, or None.

    make: create the key if it does not exist.
    """
    if make and not os.path.exists(KEY):
        os.makedirs(os.path.dirname(KEY), mode=0o700, exist_ok=True)
        with (
            contextlib.suppress(errors.AlreadyExists),  # another process has created it
            atomic_file.create(KEY, overwrite=False) as write,
        ):
            write(secrets.token_bytes(32))
    with contextlib.suppress(FileNotFoundError), open(KEY, "rb") as file:
        return file.read()
    return None
