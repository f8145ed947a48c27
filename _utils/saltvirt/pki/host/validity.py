"""The validity of the certificates that this host presents to other hypervisors."""

from __future__ import annotations

from pathlib import Path

from saltvirt.answers.migration import Certificate
from saltvirt.errors import PkiError
from saltvirt.pki.common import certs, files
from saltvirt.pki.host import layout

# qemu.conf may configure another folder, which is not checked
_FOLDERS = ("migrate_tls_x509_cert_dir", "default_tls_x509_cert_dir")


def local_certificates(
    host: str, basepath: str = "/etc/pki", conf: str = "/etc/libvirt/qemu.conf"
) -> dict[str, Certificate]:
    """The certificates in libvirt's and QEMU's default folders.

    Returns {use (``client``, ``server``, ``qemu-client``, ``qemu-server``): Certificate}. Missing
    and unreadable certificates are omitted, because libvirt may use another folder.
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
    """(end of the validity, why the certificate is not valid now); None if there is none."""
    try:
        cert = certs.load_certs(files.read(path))[0]
    except PkiError:
        return None
    return certs.not_after(cert).isoformat(), certs.wrong_now(cert)
