"""A libvirt secret's definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.xml.storage.secret import Secret

if TYPE_CHECKING:
    from saltvirt.spec.pool import PoolSpec

_USAGE_FIELDS = {"iscsi": "usage_target", "volume": "usage_volume"}


def build(
    usage_type: str, usage: str, description: str | None = None, uuid: str | None = None
) -> Secret:
    """Build the Secret for a use: ceph, iscsi, volume, tls or vtpm. It is private: its value cannot
    be read."""
    secret = Secret(ephemeral=False, private=True, uuid=uuid, description=description)
    secret.usage_type = usage_type
    setattr(secret, _USAGE_FIELDS.get(usage_type, "usage_name"), usage)
    return secret


def for_pool(spec: PoolSpec, mark: str | None = None) -> Secret:
    """Build the Secret for a PoolSpec with a password.

    mark: distinguishes this password from others without revealing it.
    """
    kind = "ceph" if spec.source_auth and spec.source_auth.type == "ceph" else "iscsi"
    description = f"password of storage pool {spec.name}"
    if mark:
        description += f" (mark {mark})"
    return build(kind, f"pool_{spec.name}", description)
