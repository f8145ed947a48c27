"""The answer of the ext_pillar ``libvirt`` to a minion."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput, PkiError, VirtError
from saltvirt.fleet import seal
from saltvirt.fleet.authorization import refuse_unknown_senders
from saltvirt.pki.authority import authorize, ca, crl, issue, policy, request_rules, rotation
from saltvirt.pki.authority.naming import Names
from saltvirt.pki.authority.store import AUTHORITIES, USES, CertificateStore
from saltvirt.pki.common import certs, files

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from saltvirt.pki.authority.issue import Case
    from saltvirt.pki.authority.policy import CertificatePolicy
    from saltvirt.pki.authority.request_rules import SigningRequest
    from saltvirt.settings import Get

log = logging.getLogger(__name__)


def answer(
    opts: Mapping[str, Any],
    get: Get,
    host: str,
    arguments: tuple[object, Mapping[str, Any], Mapping[Any, Any]],
    grains: Mapping[str, Any],
) -> dict[str, Any]:
    """The pillar of a host: its certificates, the trusted CAs, and the CRLs.

    opts: the master's configuration, read by ``get``. host: the minion id, verified by Salt.
    arguments: (command, arguments, pillar) from the minion. grains: from the minion. Returns ``{}``
    unless the master's configuration names the host; for a hypervisor, ``libvirt.error`` with one
    sentence in case of an error.
    """
    try:
        rules = policy.policy(get)
    except InvalidInput as exc:
        log.error("no libvirt certificates are issued: %s", exc)
        return {}
    if not authorize.allowed(opts, rules, host):
        return {}
    try:
        refuse_unknown_senders(opts)
        request, store = request_rules.parse(*arguments), CertificateStore(opts["pki_dir"])
        hypervisors = authorize.resolve(opts, authorize.expand(rules, opts))
        if request.hosts:
            _refuse_banned(store, host)
            return {"libvirt.hosts": _names(store, rules, hypervisors)}
        return _respond(store, rules, host, request, grains, hypervisors)
    except VirtError as exc:
        log.error("no libvirt certificates for %s: %s", host, exc)
        return {"libvirt.error": str(exc)}


def _respond(
    store: CertificateStore,
    rules: CertificatePolicy,
    host: str,
    request: SigningRequest,
    grains: Mapping[str, Any],
    hypervisors: Collection[str] = (),
) -> dict[str, Any]:
    """The answer to an authorized hypervisor. hypervisors: the ids that virt:hosts matches."""
    _refuse_banned(store, host)
    if request.dry and not store.host(host).is_dir():
        response = {"libvirt.mode": rules.mode, "libvirt.pending": [use.name for use in USES]}
        return {**response, "libvirt.subjects": _subjects(store)} if request.subjects else response
    prepare(store, rules)
    with store.issuing(host) as folder:
        _refuse_banned(store, host)  # it may have been revoked while this one waited
        authorities = ca.current(store)
        names = names_of_all(store, rules, hypervisors).for_host(host, grains)
        if not names:
            raise PkiError(
                f"{host}: no certificate can be issued for this name; either another "
                "hypervisor's id differs in case only, or the id is not a DNS name or "
                "address: change the minion's id"
            )
        cert_request = issue.make_cert_request(
            rules, request, host, names, crl.revoked_serials(store)
        )
        case = issue.Case(store, rules, folder, authorities, cert_request)
        response = {**_common_section(case), **_host_section(case, request)}
        if request.subjects:
            response["libvirt.subjects"] = _subjects(store)
        return response


def _refuse_banned(store: CertificateStore, host: str) -> None:
    if crl.banned(store, host):
        raise PkiError(
            f"the certificates of {host} were revoked; to admit it again, run "
            f"salt-run virt.revoke {host} undo=True"
        )


def _names(
    store: CertificateStore, rules: CertificatePolicy, hypervisors: Collection[str]
) -> dict[str, list[str]]:
    """{hypervisor: names of its certificates}, from the master's configuration only. Includes hosts
    without certificates, but no revoked hosts."""
    names, revoked = names_of_all(store, rules, hypervisors), set(crl.record(store)["hosts"])
    names_by_host = {host: names.for_host(host) for host in sorted(set(hypervisors) - revoked)}
    return {host: host_names for host, host_names in names_by_host.items() if host_names}


def names_of_all(
    store: CertificateStore, rules: CertificatePolicy, hypervisors: Collection[str]
) -> Names:
    """The Names of all hypervisors. hypervisors: the ids that virt:hosts matches."""
    return Names(rules, {*hypervisors, *store.hosts()}, crl.record(store)["hosts"])


def prepare(store: CertificateStore, rules: CertificatePolicy) -> None:
    """Create the authorities, and finish what a crash has interrupted."""
    rotation.resume(store)
    ca.ensure(store, rules)
    if crl.outdated(store):
        with store.exclusive():
            crl.rebuild(store)


def _host_section(case: Case, request: SigningRequest) -> dict[str, Any]:
    """The part of the answer that is for this host only."""
    if request.dry:
        return {**_certificates(case), "libvirt.pending": issue.uses_to_renew(case, USES)}
    if case.policy.mode == policy.CSR:
        return _signed(case, request)
    return _pairs(case, request)


def _subjects(store: CertificateStore) -> list[str]:
    """The subjects of all hypervisors' client certificates, without revoked hosts."""
    client = next(use for use in USES if use.name == "client")
    hosts = [host for host in store.hosts() if not crl.banned(store, host)]
    certificates = [issue.stored_cert(store.host(host), client) for host in hosts]
    return sorted(cert.subject.rfc4514_string() for cert in certificates if cert is not None)


def _common_section(case: Case) -> dict[str, Any]:
    """The part of the answer that every hypervisor receives in either mode."""
    section = {"libvirt.mode": case.policy.mode}
    for name, prefix in AUTHORITIES.items():
        section[f"libvirt.{prefix}cacert.pem"] = case.authorities[name].trusted.decode()
        pem = files.read(case.store.path(f"{prefix}crl.pem"))
        if pem:
            section[f"libvirt.{prefix}cacrl.pem"] = pem.decode()
    return section


def _pairs(case: Case, request: SigningRequest) -> dict[str, Any]:
    """Certificates and keys; the keys are encrypted if the host sent a public key, and otherwise
    plain, as in Salt."""
    certificates, secrets = {}, {}
    for use in USES:
        key, cert, _reason = issue.pair(case, use)
        certificates[f"libvirt.{use.cert}"] = certs.cert_pem(cert).decode()
        secrets[f"libvirt.{use.key}"] = certs.key_pem(key).decode()
    if request.seal is None:
        return {**certificates, **secrets}
    return {
        **certificates,
        "libvirt.sealed": seal.seal(request.seal, case.cert_request.host, secrets),
    }


def _signed(case: Case, request: SigningRequest) -> dict[str, Any]:
    """Certificates for the keys whose possession the host has proved, or else the stored ones."""
    for use in USES:
        if use.name in request.csr:
            issue.sign_request(case, use, request.csr[use.name])
    return {**_certificates(case), "libvirt.pending": issue.uses_to_renew(case, USES)}


def _certificates(case: Case) -> dict[str, Any]:
    """The certificates that are stored on the master; issues none."""
    certificates = {}
    for use in USES:
        cert = issue.stored_cert(case.folder, use)
        if cert is not None:
            certificates[f"libvirt.{use.cert}"] = certs.cert_pem(cert).decode()
    return certificates
