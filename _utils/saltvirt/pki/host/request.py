"""Request certificates from the master through the pillar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cryptography import x509

from saltvirt.errors import PkiError
from saltvirt.fleet import seal
from saltvirt.pki.authority.store import USES
from saltvirt.pki.common import certs, files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from saltvirt.pki.common.certs import PrivateKey
    from saltvirt.pki.host.layout import Pairs

# calls the master's ext_pillar and returns the pillar
PillarExt = Callable[[dict[str, Any]], Mapping[str, Any]]

_PREFIX = "libvirt."


def fetch(
    pillar_ext: PillarExt,
    host: str,
    tls_files: Pairs,
    requested: Mapping[str, Any],
    dry: bool = False,
) -> dict[str, Any]:
    """The content of the host's files: {source: PEM text}, and with ``dry`` possibly ``pending``:
    uses that the master would issue.

    pillar_ext: a function of the ext_pillar argument. tls_files: {use: (file of the key, file of
    the certificate)}. requested: country … expiration_days. Raises PkiError with the reason if the
    master returns nothing usable.
    """
    receiver = seal.Receiver(host)
    query = {"seal": receiver.public, "dry": dry, **requested}
    response = _answer(pillar_ext, query, receiver)
    if response.get("mode") == "csr" and not dry:
        response = _with_signed_keys(pillar_ext, query, receiver, response, tls_files)
    if not dry:
        _check_complete(response)
    return response


def _answer(
    pillar_ext: PillarExt, query: Mapping[str, Any], receiver: seal.Receiver
) -> dict[str, Any]:
    pillar = pillar_ext({"libvirt": query})
    response = {
        key.removeprefix(_PREFIX): value
        for key, value in pillar.items()
        if isinstance(key, str) and key.startswith(_PREFIX)
    }
    if response.get("error"):
        raise PkiError(f"the master refuses: {response['error']}")
    if "cacert.pem" not in response and "pending" not in response:
        raise PkiError(_no_answer_text(pillar))
    if response.get("sealed"):
        secrets = receiver.open(response.pop("sealed"))
        response.update({key.removeprefix(_PREFIX): value for key, value in secrets.items()})
    return response


def subjects(pillar_ext: PillarExt, host: str) -> list[str]:
    """The subjects of all hypervisors' client certificates, from the master."""
    response = _answer(pillar_ext, {"dry": True, "subjects": True}, seal.Receiver(host))
    names: list[str] = response.get("subjects", [])
    return names


def hosts(pillar_ext: PillarExt) -> dict[str, list[str]]:
    """{hypervisor: its names}, from the master. Raises PkiError if it does not return them."""
    pillar = pillar_ext({"libvirt": {"hosts": True}})
    names_by_host: dict[str, list[str]] | None = pillar.get(f"{_PREFIX}hosts")
    if not names_by_host:
        raise PkiError(pillar.get(f"{_PREFIX}error") or _no_answer_text(pillar))
    return names_by_host


def patterns(names: Iterable[str]) -> list[str]:
    """The subjects as patterns of ``tls_allowed_dn_list``, in both orders of their parts, because
    versions of libvirt differ. Subjects with ``*`` or ``?`` are omitted, because they would match
    others."""
    dn_patterns = []
    for name in names:
        parts = name.split(",")
        if not set("*?\\") & set(name):
            dn_patterns += [name, ",".join(reversed(parts))]
    return list(dict.fromkeys(dn_patterns))


def _no_answer_text(pillar: Mapping[Any, Any]) -> str:
    errors = pillar.get("_errors")
    reason = f" It says: {'; '.join(str(error) for error in errors)}." if errors else ""
    return (
        "the pillar has no libvirt certificates for this minion."
        + reason
        + (
            " On the master, check that virt:hosts in its configuration matches this minion, "
            "run salt-run saltutil.sync_all, and check its log. Without a master, put "
            "libvirt.cacert.pem, libvirt.servercert.pem, libvirt.serverkey.pem, "
            "libvirt.clientcert.pem and libvirt.clientkey.pem into the pillar"
        )
    )


def _with_signed_keys(
    pillar_ext: PillarExt,
    query: Mapping[str, Any],
    receiver: seal.Receiver,
    response: Mapping[str, Any],
    tls_files: Pairs,
) -> dict[str, Any]:
    """Send signing requests for the uses that need a certificate; the keys stay on this host."""
    keys, requests = {}, {}
    for use in USES:
        key = _own_key(tls_files[use.name][0].path)
        pem = response.get(use.cert)
        cert = certs.load_certs(pem.encode())[0] if pem else None
        is_match = key and cert and certs.belong_together(cert, key)
        if key is None or not is_match or use.name in response.get("pending", ()):
            key = certs.new_key()
            requests[use.name] = signing_request(key)
        keys[use.key] = certs.key_pem(key).decode()
    if requests:
        response = _answer(pillar_ext, {**query, "csr": requests}, receiver)
    return {**response, **keys}


def _own_key(path: Path) -> PrivateKey | None:
    try:
        return certs.load_key(files.read(path))
    except PkiError:
        return None


def signing_request(key: PrivateKey) -> str:
    """A PEM signing request that proves possession of the key; the master decides all names."""
    name = certs.subject("salt-virt")
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return certs.csr_pem(builder.sign(key, certs.digest(key)))


def _check_complete(response: Mapping[str, Any]) -> None:
    """Raise PkiError unless each certificate belongs to its key and to a CA in the response."""
    for use in USES:
        if use.authority != "libvirt" and use.key not in response:
            continue  # from a pillar made by hand, or by Salt's own ext_pillar
        prefix = "qemu-" if use.authority == "qemu" else ""
        needed = (use.key, use.cert, f"{prefix}cacert.pem")
        missing = [name for name in needed if not response.get(name)]
        if missing:
            raise PkiError(f"the pillar lacks libvirt.{' and libvirt.'.join(missing)}")
        key = certs.load_key(response[use.key].encode())
        cert = certs.load_certs(response[use.cert].encode())[0]
        cas = certs.load_certs(response[f"{prefix}cacert.pem"].encode())
        if not certs.belong_together(cert, key):
            raise PkiError(f"libvirt.{use.key} does not belong to libvirt.{use.cert}")
        if not any(certs.signed_by(cert, ca) for ca in cas):
            raise PkiError(f"libvirt.{use.cert} is not signed by libvirt.{prefix}cacert.pem")
