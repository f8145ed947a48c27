"""Until when the certificates hold that this host shows other hypervisors."""

from __future__ import annotations

from pathlib import Path

from saltvirt.answers.migration import Certificate
from saltvirt.errors import PkiError
from saltvirt.pki.common import certs, files
from saltvirt.pki.host import layout

# qemu.conf may send QEMU elsewhere, where we know nothing
_FOLDERS = ("migrate_tls_x509_cert_dir", "default_tls_x509_cert_dir")


def here(
    host: str, basepath: str = "/etc/pki", conf: str = "/etc/libvirt/qemu.conf"
) -> dict[str, Certificate]:
    """What lies at the places where libvirt and QEMU look first.

    Returns a dict of use (``client``, ``server``, ``qemu-client``, ``qemu-server``) to its
    Certificate. What lies nowhere there, or cannot be read, is not in it: libvirt may know another
    place.
    """
    folder = next(filter(None, layout.configured(conf, *_FOLDERS)), None)
    found = {}
    for use, (_, place) in layout.by_use(layout.places(basepath)).items():
        if use.startswith("qemu-") and folder and Path(folder) != place.path.parent:
            continue
        about = _about(place.path)
        if about:
            found[use] = Certificate(host, str(place.path), *about)
    return found


def _about(path: Path) -> tuple[str, str | None] | None:
    """(until when it holds, why it does not hold now); None where there is none."""
    try:
        cert = certs.load_certs(files.read(path))[0]
    except PkiError:
        return None
    return certs.not_after(cert).isoformat(), certs.wrong_now(cert)
