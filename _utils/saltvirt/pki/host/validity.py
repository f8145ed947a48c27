"""Until when the certificates hold that this host shows other hypervisors."""

from __future__ import annotations

from pathlib import Path

from saltvirt.answers.migration import Certificate
from saltvirt.errors import PkiError
from saltvirt.pki.common import certs, files
from saltvirt.pki.host import layout

# qemu.conf may send QEMU elsewhere, where we know nothing
_FOLDERS = ("migrate_tls_x509_cert_dir", "default_tls_x509_cert_dir")


def local_certificates(
    host: str, basepath: str = "/etc/pki", conf: str = "/etc/libvirt/qemu.conf"
) -> dict[str, Certificate]:
    """What lies at the places where libvirt and QEMU look first.

    Returns a dict of use (``client``, ``server``, ``qemu-client``, ``qemu-server``) to its
    Certificate. What lies nowhere there, or cannot be read, is not in it: libvirt may know another
    place.
    """
    folder = next(filter(None, layout.configured(conf, *_FOLDERS)), None)
    certificates = {}
    for use, (_, tls_file) in layout.by_use(layout.tls_files(basepath)).items():
        if use.startswith("qemu-") and folder and Path(folder) != tls_file.path.parent:
            continue
        validity = _validity(tls_file.path)
        if validity:
            certificates[use] = Certificate(host, str(tls_file.path), *validity)
    return certificates


def _validity(path: Path) -> tuple[str, str | None] | None:
    """(until when it holds, why it does not hold now); None where there is none."""
    try:
        cert = certs.load_certs(files.read(path))[0]
    except PkiError:
        return None
    return certs.not_after(cert).isoformat(), certs.wrong_now(cert)
