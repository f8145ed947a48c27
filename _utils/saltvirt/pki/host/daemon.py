"""Make the libvirt daemon of this host reload its certificates, and verify that it did."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING

from cryptography import x509

from saltvirt.errors import PkiError
from saltvirt.pki.common import certs, files
from saltvirt.system import tls_listener

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PORT = 16514
# (service, URI of its administration socket); the modular proxy first, because it owns the port
_DAEMONS = (("virtproxyd", "virtproxyd:///system"), ("libvirtd", "libvirtd:///system"))
_TIMEOUT_S = 20


def running() -> tuple[str, str] | None:
    """The (service, admin URI) of the running daemon for remote clients, or None."""
    for service, uri in _DAEMONS:
        if _run("systemctl", "is-active", "--quiet", f"{service}.service")[0] == 0:
            return service, uri
    return None


def reload() -> str:
    """Make the running daemon reload its certificates, and return a description.

    Guests and connections are not interrupted. Raises PkiError if the daemon cannot be reloaded.
    """
    service_uri = running()
    if service_uri is None:
        return "the daemon is not running; it loads the certificates when it starts"
    service, uri = service_uri
    code, text = _run("virt-admin", "-c", uri, "server-update-tls", service)
    if code == 0:
        return f"{service} has reloaded them"
    if "tls" in text.lower() and ("not enabled" in text or "no tls" in text.lower()):
        return f"{service} does not listen for TLS"
    code, error = _run("systemctl", "restart", f"{service}.service")
    if code:
        raise PkiError(f"{service} could not reload its certificates: {text}; {error}")
    return f"{service} was restarted (virt-admin: {text})"


def _run(*argv: str) -> tuple[int, str]:
    if not shutil.which(argv[0]):
        return 127, f"{argv[0]} is not installed"
    try:
        process = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]} took more than {_TIMEOUT_S} s"
    lines = (process.stderr or process.stdout).strip().splitlines()
    return process.returncode, lines[-1] if lines else ""


def listens(address: str = "127.0.0.1", port: int = PORT) -> bool:
    """Whether something accepts connections on the TLS port."""
    try:
        with socket.create_connection((address, port), timeout=2):
            return True
    except OSError:
        return False


def handshake(
    name: str, paths: Sequence[Path], address: str = "127.0.0.1", port: int = PORT
) -> x509.Certificate:
    """Connect as a client of the cluster would, and return the daemon's certificate.

    name: the required name of the daemon's certificate. paths: of the CA's certificates, the
    client's certificate and its key. Raises PkiError with the error of TLS.
    """
    try:
        pair = tls_listener.CertificateFiles(str(paths[1]), str(paths[2]))
        context = tls_listener.new_context(ssl.PROTOCOL_TLS_CLIENT, pair)
        tls_listener.require_peer(context, ca_file=str(paths[0]))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        with (
            socket.create_connection((address, port), timeout=_TIMEOUT_S) as raw_socket,
            context.wrap_socket(raw_socket, server_hostname=name) as tls,
        ):
            certificate = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
            # libvirt sends one byte when it has accepted the client's certificate
            if tls.recv(1) != b"\x01":
                raise PkiError(
                    f"the daemon on {address}:{port} refused the host's client certificate"
                )
            return certificate
    except (OSError, ValueError) as exc:
        raise PkiError(f"TLS with {address}:{port} as {name} failed: {exc}") from exc


def serves(name: str, path_of: Callable[[str], Path]) -> str | None:
    """Why the daemon does not use the certificates in the files, or None if it does.

    path_of: maps a file's name (``cacert`` …) to its path.
    """
    expected = certs.load_certs(files.read(path_of("servercert")))[0]
    try:
        actual = handshake(name, [path_of(n) for n in ("cacert", "clientcert", "clientkey")])
    except PkiError as exc:
        return str(exc)
    if certs.fingerprint(actual) != certs.fingerprint(expected):
        return f"the daemon still uses certificate {certs.serial(actual)}"
    return None
