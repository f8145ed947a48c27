"""The location of guests' disks, configured as ``virt:images``."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree

from saltvirt import errors, settings
from saltvirt.host import connection
from saltvirt.host.connection import libvirt

_FILES = ("dir", "fs", "netfs")


@dataclass(frozen=True)
class ImagesFolder:
    """The configured location.

    folder: for images, kernels and, without a pool, disks. pool: for disks.
    """

    folder: str
    pool: str | None = None


def configured(get: settings.Get) -> ImagesFolder:
    """Return the configured ImagesFolder.

    get: Salt's ``config.get``. Raises InvalidInput for a value that is neither an absolute path nor
    a pool of this host.
    """
    value = settings.text(get, "images", settings.IMAGES_FOLDER)
    if value.startswith("/"):
        return ImagesFolder(value)
    with connection.connect(settings.connection(get, {})) as conn:
        try:
            tree = ElementTree.fromstring(conn.storagePoolLookupByName(value).XMLDesc(0))
        except libvirt.libvirtError as exc:
            raise errors.InvalidInput(
                f"virt:images {value!r} is neither an absolute path nor a storage pool of "
                f"{conn.getHostname()}"
            ) from exc
    if tree.get("type") in _FILES:
        return ImagesFolder(tree.findtext("target/path", settings.IMAGES_FOLDER), value)
    return ImagesFolder(settings.IMAGES_FOLDER, value)
