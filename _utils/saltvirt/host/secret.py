"""libvirt's secrets: passwords that pools need to reach their source.

A secret is private: libvirt never gives its value back, also not to us.
"""

import base64
import binascii

from saltvirt import errors
from saltvirt.design import secret as design
from saltvirt.host.connection import libvirt, translated


def find(conn, wanted):
    """The virSecret with the use of this xml Secret, or None."""
    kind = {
        "ceph": libvirt.VIR_SECRET_USAGE_TYPE_CEPH,
        "iscsi": libvirt.VIR_SECRET_USAGE_TYPE_ISCSI,
    }[wanted.usage_type]
    try:
        return conn.secretLookupByUsage(kind, wanted.usage)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_SECRET:
            raise
        return None


def has_password(spec):
    """Does this PoolSpec bring a password that a secret is to be made of?"""
    return bool(spec.source_auth and spec.source_auth.password)


def uuid_for_pool(conn, spec):
    """UUID of the secret made for this PoolSpec's password; None while there is none."""
    found = find(conn, design.for_pool(spec)) if has_password(spec) else None
    return found.UUIDString() if found is not None else None


def store_for_pool(conn, spec, undo):
    """Makes the secret of a PoolSpec's password, or gives it the value; its UUID.

    undo: a Revert that takes away again what is made.
    """
    if not has_password(spec):
        return None
    value, wanted = _value(spec), design.for_pool(spec)
    found = find(conn, wanted)
    with translated(f"store the secret {wanted.usage}"):
        if found is None:
            found = conn.secretDefineXML(wanted.tostring())
            undo.push(f"remove the secret {wanted.usage}", found.undefine)
        found.setValue(value)
    return found.UUIDString()


def forget_for_pool(conn, pool):
    """Removes the secret that this xml Pool names, when it was made for just this pool."""
    source = pool.source
    if not source.auth_uuid and not source.auth_usage:
        return
    kind = "ceph" if source.auth_type == "ceph" else "iscsi"
    found = find(conn, design.build(kind, f"pool_{pool.name}"))
    if found is not None and source.auth_uuid in (None, found.UUIDString()):
        with translated(f"remove the secret pool_{pool.name}"):
            found.undefine()


def _value(spec):
    """The bytes to store: Ceph's keys are given in base64."""
    password = str(spec.source_auth.password)
    if spec.source_auth.type != "ceph":
        return password.encode()
    try:
        return base64.b64decode(password, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise errors.InvalidInput(
            f"pool {spec.name}: the password of a Ceph user must be its base64 key"
        ) from exc
