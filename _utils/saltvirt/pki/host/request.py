"""A hypervisor asks its master for certificates, through the pillar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cryptography import x509

from saltvirt.errors import PkiError
from saltvirt.pki.authority.store import USES
from saltvirt.pki.common import certs, files, seal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from saltvirt.pki.common.certs import PrivateKey
    from saltvirt.pki.host.layout import Pairs

# asks the master's ext_pillar, whose answer is the pillar
PillarExt = Callable[[dict[str, Any]], Mapping[str, Any]]

_PREFIX = "libvirt."


def fetch(
    pillar_ext: PillarExt, host: str, places: Pairs, requested: Mapping[str, Any], dry: bool = False
) -> dict[str, Any]:
    """What belongs into the host's files: {source: PEM text}, and with ``dry`` maybe
    ``pending``: uses that the master would make.

    pillar_ext: a function of the ext_pillar argument. places: {use: (key place, certificate
    place)}. requested: country … expiration_days. Raises PkiError with the reason when the
    master gives nothing, or nothing usable.
    """
    receiver = seal.Receiver(host)
    asked = {"seal": receiver.public, "dry": dry, **requested}
    found = _answer(pillar_ext, asked, receiver)
    if found.get("mode") == "csr" and not dry:
        found = _by_request(pillar_ext, asked, receiver, found, places)
    if not dry:
        _complete(found)
    return found


def _answer(
    pillar_ext: PillarExt, asked: Mapping[str, Any], receiver: seal.Receiver
) -> dict[str, Any]:
    pillar = pillar_ext({"libvirt": asked})
    found = {
        key.removeprefix(_PREFIX): value
        for key, value in pillar.items()
        if isinstance(key, str) and key.startswith(_PREFIX)
    }
    if found.get("error"):
        raise PkiError(f"the master says: {found['error']}")
    if "cacert.pem" not in found and "pending" not in found:
        raise PkiError(_nothing(pillar))
    if found.get("sealed"):
        secrets = receiver.open(found.pop("sealed"))
        found.update({key.removeprefix(_PREFIX): value for key, value in secrets.items()})
    return found


def subjects(pillar_ext: PillarExt, host: str) -> list[str]:
    """The names of all hypervisors' client certificates, as the master knows them."""
    found = _answer(pillar_ext, {"dry": True, "subjects": True}, seal.Receiver(host))
    names: list[str] = found.get("subjects", [])
    return names


def hosts(pillar_ext: PillarExt) -> dict[str, list[str]]:
    """{hypervisor: its names}, as the master knows them. Raises PkiError when it does not say."""
    pillar = pillar_ext({"libvirt": {"hosts": True}})
    found: dict[str, list[str]] | None = pillar.get(f"{_PREFIX}hosts")
    if not found:
        raise PkiError(pillar.get(f"{_PREFIX}error") or _nothing(pillar))
    return found


def patterns(names: Iterable[str]) -> list[str]:
    """Those names as ``tls_allowed_dn_list`` wants them. Releases of libvirt differ in the
    order of the parts, and ``*`` and ``?`` in a name would match others."""
    found = []
    for name in names:
        parts = name.split(",")
        if not set("*?\\") & set(name):
            found += [name, ",".join(reversed(parts))]
    return list(dict.fromkeys(found))


def _nothing(pillar: Mapping[Any, Any]) -> str:
    errors = pillar.get("_errors")
    reason = f" It says: {'; '.join(str(error) for error in errors)}." if errors else ""
    return (
        "the pillar has no libvirt certificates for this minion." + reason + " Check on the "
        "master that virt:hosts in its configuration matches this minion, that "
        "salt-run saltutil.sync_all was run there, and its log. Without a master, put "
        "libvirt.cacert.pem, libvirt.servercert.pem, libvirt.serverkey.pem, "
        "libvirt.clientcert.pem and libvirt.clientkey.pem into the pillar"
    )


def _by_request(
    pillar_ext: PillarExt,
    asked: Mapping[str, Any],
    receiver: seal.Receiver,
    found: Mapping[str, Any],
    places: Pairs,
) -> dict[str, Any]:
    """The keys stay here: signing requests for those that need a certificate."""
    keys, requests = {}, {}
    for use in USES:
        key = _own_key(places[use.name][0].path)
        pem = found.get(use.cert)
        cert = certs.load_certs(pem.encode())[0] if pem else None
        good = key and cert and certs.belong_together(cert, key)
        if key is None or not good or use.name in found.get("pending", ()):
            key = certs.new_key()
            requests[use.name] = signing_request(key)
        keys[use.key] = certs.key_pem(key).decode()
    if requests:
        found = _answer(pillar_ext, {**asked, "csr": requests}, receiver)
    return {**found, **keys}


def _own_key(path: Path) -> PrivateKey | None:
    try:
        return certs.load_key(files.read(path))
    except PkiError:
        return None


def signing_request(key: PrivateKey) -> str:
    """A PEM signing request that proves the key; the master decides all names."""
    name = certs.subject("salt-virt")
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return certs.csr_pem(builder.sign(key, certs.digest(key)))


def _complete(found: Mapping[str, Any]) -> None:
    """Raises PkiError unless each certificate fits its key and a CA that is given."""
    for use in USES:
        if use.authority != "libvirt" and use.key not in found:
            continue  # from a pillar made by hand, or by Salt's own ext_pillar
        prefix = "qemu-" if use.authority == "qemu" else ""
        needed = (use.key, use.cert, f"{prefix}cacert.pem")
        missing = [name for name in needed if not found.get(name)]
        if missing:
            raise PkiError(f"the pillar lacks libvirt.{' and libvirt.'.join(missing)}")
        key = certs.load_key(found[use.key].encode())
        cert = certs.load_certs(found[use.cert].encode())[0]
        cas = certs.load_certs(found[f"{prefix}cacert.pem"].encode())
        if not certs.belong_together(cert, key):
            raise PkiError(f"libvirt.{use.key} does not belong to libvirt.{use.cert}")
        if not any(certs.signed_by(cert, ca) for ca in cas):
            raise PkiError(f"libvirt.{use.cert} is not signed by libvirt.{prefix}cacert.pem")
