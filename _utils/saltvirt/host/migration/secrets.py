"""The libvirt secrets that a guest's devices refer to. Their values are never read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from saltvirt.host.connection import libvirt
from saltvirt.migration.facts import SecretReference

# virSecretUsageType
_USAGES = ("none", "volume", "ceph", "iscsi", "tls", "vtpm")
_KINDS = {"passphrase": "volume"}


def references(conn: libvirt.virConnect, root: Element) -> tuple[SecretReference, ...]:
    """Return the secrets in a domain's XML, once for each device."""
    return tuple(dict.fromkeys(_iter_references(conn, root)))


def _iter_references(conn: libvirt.virConnect, root: Element) -> Iterator[SecretReference]:
    for disk in root.iterfind("devices/disk"):
        target = disk.find("target")
        device = f"disk {target.get('dev', '') if target is not None else ''}"
        for secret in (*disk.iterfind(".//auth/secret"), *disk.iterfind(".//encryption/secret")):
            yield _reference(conn, device, secret)
    for secret in root.iterfind("devices/hostdev//auth/secret"):
        yield _reference(conn, "a host device", secret)
    for encryption in root.iterfind("devices/tpm/backend/encryption[@secret]"):
        element = Element("secret", {"type": "vtpm", "uuid": encryption.get("secret", "")})
        yield _reference(conn, "the TPM", element)


def _reference(conn: libvirt.virConnect, device: str, element: Element) -> SecretReference:
    """Return what a ``secret`` element refers to, as far as this host's libvirt has it."""
    kind = element.get("type", "")
    kind = _KINDS.get(kind, kind)
    uuid, usage = element.get("uuid"), element.get("usage")
    usage_text = f"{kind} {usage}" if usage else kind
    try:
        if uuid:
            secret = conn.secretLookupByUUIDString(uuid)
        else:
            secret = conn.secretLookupByUsage(_number(kind), usage or "")
        number, usage_id = secret.usageType(), secret.usageID()
    except libvirt.libvirtError:
        return SecretReference(device, uuid, usage_text or None)
    usage_name = _USAGES[number] if 0 <= number < len(_USAGES) else kind
    by_usage = (None, None) if uuid else (kind, usage)
    return SecretReference(
        device, secret.UUIDString(), f"{usage_name} {usage_id}".strip(), *by_usage
    )


def _number(kind: str) -> int:
    return _USAGES.index(kind) if kind in _USAGES else 0


def missing(
    peer: libvirt.virConnect, needed: Iterable[SecretReference]
) -> tuple[SecretReference, ...]:
    """Return the secrets that the other host lacks. A libvirt without a secret driver is no
    reason."""
    return tuple(
        reference for reference in needed if reference.uuid and not _has_secret(peer, reference)
    )


def _has_secret(peer: libvirt.virConnect, needed: SecretReference) -> bool:
    """Return whether the host has the secret, by the guest's reference: usage or UUID."""
    try:
        if needed.usage_type:
            peer.secretLookupByUsage(_number(needed.usage_type), needed.usage_id or "")
        else:
            peer.secretLookupByUUIDString(needed.uuid or "")
    except libvirt.libvirtError as exc:
        return exc.get_error_code() != libvirt.VIR_ERR_NO_SECRET
    return True
