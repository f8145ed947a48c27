"""Until when the certificates hold that this host shows other hypervisors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saltvirt.errors import PkiError
from saltvirt.pki.common import certs, files
from saltvirt.pki.host import layout

# qemu.conf may send QEMU elsewhere, where we know nothing
_FOLDERS = ("migrate_tls_x509_cert_dir", "default_tls_x509_cert_dir")


def here(
    host: str, basepath: str = "/etc/pki", conf: str = "/etc/libvirt/qemu.conf"
) -> dict[str, dict[str, Any]]:
    """What lies at the places where libvirt and QEMU look first.

    Returns a dict of use (``client``, ``server``, ``qemu-client``, ``qemu-server``) to
    ``host``, ``file``, ``until`` (UTC, ISO 8601) and ``wrong``: None, or why it does not hold
    now. What lies nowhere there, or cannot be read, is not in it: libvirt may know another place.
    """
    folder = next(filter(None, layout.configured(conf, *_FOLDERS)), None)
    found = {}
    for use, (_, place) in layout.by_use(layout.places(basepath)).items():
        if use.startswith("qemu-") and folder and Path(folder) != place.path.parent:
            continue
        about = _about(place.path)
        if about:
            found[use] = {"host": host, "file": str(place.path), **about}
    return found


def _about(path: Path) -> dict[str, Any] | None:
    try:
        cert = certs.load_certs(files.read(path))[0]
    except PkiError:
        return None
    return {"until": certs.not_after(cert).isoformat(), "wrong": certs.wrong_now(cert)}
