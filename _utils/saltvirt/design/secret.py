"""A libvirt secret's definition."""

from saltvirt.xml.secret import Secret

_PLACE = {"iscsi": "usage_target", "volume": "usage_volume"}


def build(usage_type, usage, description=None, uuid=None):
    """The Secret for a use: ceph, iscsi, volume, tls or vtpm. Its value cannot be read back."""
    secret = Secret(ephemeral=False, private=True, uuid=uuid, description=description)
    secret.usage_type = usage_type
    setattr(secret, _PLACE.get(usage_type, "usage_name"), usage)
    return secret


def for_pool(spec, mark=None):
    """The Secret for a PoolSpec whose user gave a password.

    mark: what tells this password from another and says nothing of it.
    """
    kind = "ceph" if spec.source_auth.type == "ceph" else "iscsi"
    description = f"password of storage pool {spec.name}"
    if mark:
        description += f" (mark {mark})"
    return build(kind, f"pool_{spec.name}", description)
