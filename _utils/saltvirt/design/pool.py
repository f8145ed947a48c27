"""Build a storage pool's definition from the user's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saltvirt.design.put import put
from saltvirt.design.unknown_elements import keep_unknown
from saltvirt.xml.storage.pool import MountOption, Pool
from saltvirt.xml.storage.pool_source import PoolDevice, PoolHost

if TYPE_CHECKING:
    from saltvirt.spec.pool import AdapterSpec, PoolAuthSpec, PoolSpec
    from saltvirt.xml.storage.pool_source import Adapter, PoolSource


def build(spec: PoolSpec, actual: Pool | None = None, secret_uuid: str | None = None) -> Pool:
    """Build the Pool of a PoolSpec.

    actual: the existing Pool of this name: its UUID is kept, and its permissions and source details
    if the spec does not contain them. secret_uuid: the libvirt secret of a password in the spec.
    """
    pool = put(Pool(), spec)
    source = put(pool.source, spec)
    for item in spec.source_hosts or ():
        source.hosts.append(PoolHost(name=item.name, port=item.port))
    for device in spec.source_devices or ():
        source.devices.append(put(PoolDevice(), device))
    if spec.type in ("logical", "zfs") and not spec.source_name:
        source.name = spec.name
    for option in spec.source_mount_opts or ():
        pool.mount_options.append(MountOption(name=option))
    if spec.source_adapter:
        _adapter(spec.source_adapter, source.adapter)
    if spec.source_auth:
        _auth(spec.source_auth, source, secret_uuid)
    if actual is not None:
        _keep(pool, actual)
        if spec.source_mount_opts is None and pool.type == actual.type:
            pool.mount_options = actual.mount_options
    if spec.permissions:
        put(pool.permissions, spec.permissions)
    return pool


def _adapter(spec: AdapterSpec, adapter: Adapter) -> None:
    put(adapter, spec)
    if spec.parent_address:
        adapter.parent_unique_id = spec.parent_address.unique_id
        if spec.parent_address.address:
            put(adapter.parent_address, spec.parent_address.address)


def _auth(spec: PoolAuthSpec, source: PoolSource, secret_uuid: str | None) -> None:
    source.auth_type, source.auth_username = spec.type, spec.username
    if spec.secret and spec.secret.type == "usage":
        source.auth_usage = spec.secret.value
    else:
        source.auth_uuid = spec.secret.value if spec.secret else secret_uuid


def _keep(pool: Pool, actual: Pool) -> None:
    """Keep decisions of libvirt or of an earlier call."""
    pool.uuid = actual.uuid
    keep_unknown(pool, actual)
    if pool.path and actual.path and pool.path.rstrip("/") == actual.path.rstrip("/"):
        pool.permissions = actual.permissions
    if pool.type != actual.type:
        return
    pool.cow = actual.cow
    for name in ("format", "vendor", "product", "protocol_version"):
        if getattr(pool.source, name) is None:
            setattr(pool.source, name, getattr(actual.source, name))
    if pool.type == "logical" and not len(pool.source.devices):
        pool.source.devices = actual.source.devices
