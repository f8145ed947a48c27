"""Certificates of the whole cloud: show them, revoke them, and replace the CAs."""

from __future__ import annotations

import datetime
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saltvirt import units
from saltvirt.answers.guest_calls import HostRequest
from saltvirt.answers.host_calls import CERTIFICATES, UPDATE_CERTIFICATES
from saltvirt.errors import NotFound, VirtError
from saltvirt.pki.authority import ca, crl, issue, request_rules, responder, rotation
from saltvirt.pki.authority.store import AUTHORITIES, USES
from saltvirt.pki.common import certs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from saltvirt.answers.calls import HostAnswer
    from saltvirt.answers.certificates import (
        CertificateInfo,
        CertificateUpdate,
        InstalledCertificate,
    )
    from saltvirt.fleet.client import Fleet
    from saltvirt.pki.authority.naming import Names
    from saltvirt.pki.authority.policy import CertificatePolicy
    from saltvirt.pki.authority.store import CertificateStore

UPDATE_TIMEOUT_S = 120
# a CA with fewer days left should be replaced; a replacement waits for each host
CA_DAYS = 60


def authorities(store: CertificateStore) -> dict[str, dict[str, Any]]:
    """{name: description of the CA}, with ``problem`` if it cannot sign now or expires soon."""
    summaries = {}
    for name in AUTHORITIES:
        try:
            authority = ca.read(store, name)
            details = certs.describe(authority.cert)
            remaining = certs.not_after(authority.cert) - store.now()
            details["days_left"] = remaining.days
            lifetime = certs.lifetime(authority.cert)
            if remaining < min(datetime.timedelta(days=CA_DAYS), lifetime / 3):
                details["problem"] = (
                    f"expires on {details['not_after'][:10]}, with every certificate that "
                    "it has issued: run salt-run virt.rotate_ca"
                )
            trusted = [cert.subject.rfc4514_string() for cert in authority.also_trusted]
            if trusted:
                details["also_trusted"] = trusted
            ca.check_time(authority.cert, store)
        except VirtError as exc:
            details = {"problem": str(exc)}
        summaries[name] = details
    return summaries


@dataclass(frozen=True)
class HostRecords:
    """The master's records of the hosts' certificates. hypervisors: the ids that virt:hosts
    matches."""

    store: CertificateStore
    rules: CertificatePolicy
    hypervisors: Collection[str] = ()

    @functools.cached_property
    def _names(self) -> Names:
        return responder.names_of_all(self.store, self.rules, self.hypervisors)

    @functools.cached_property
    def _signers(self) -> dict[str, ca.Authority]:
        return {name: ca.read(self.store, name) for name in AUTHORITIES}

    @functools.cached_property
    def _revoked(self) -> set[str]:
        return crl.revoked_serials(self.store)

    def certificates(self, host: str) -> dict[str, dict[str, Any]]:
        """{use: description of the host's certificate as stored on the master}.

        ``days_left``; ``renewed``: the first day of its renewal; ``problem``: why it will be
        replaced at once.
        """
        by_use = {}
        case = self._case(host)
        for use in USES:
            cert = issue.stored_cert(case.folder, use)
            if cert is None:
                continue
            end = certs.not_after(cert)
            details = certs.describe(cert)
            details["days_left"] = (end - self.store.now()).days
            details["renewed"] = (end - certs.lifetime(cert) / 3).date().isoformat()
            if self.rules.trust_grains:  # the names are the host's own, which its request contains
                names = tuple(certs.names(cert))
                case = replace(case, cert_request=replace(case.cert_request, names=names))
            fault = issue.fault(case, use, cert)
            if fault:
                details["problem"] = fault
            by_use[use.name] = details
        return by_use

    def _case(self, host: str) -> issue.Case:
        """The data for issuing certificates without a request from the host; the host's own grains
        are unknown here."""
        request, names = request_rules.SigningRequest(), self._names.for_host(host)
        cert_request = issue.make_cert_request(self.rules, request, host, names, self._revoked)
        return issue.Case(
            self.store, self.rules, self.store.host(host), self._signers, cert_request
        )

    def foreign_names(self, host: str) -> list[str]:
        """Messages about valid certificates of the host for a name that belongs to another host
        now."""
        now = self.store.now()
        conflicts: set[tuple[str, str]] = set()
        for cert in issue.issued(self.store.host(host)):
            if certs.serial(cert) in self._revoked or certs.not_after(cert) < now:
                continue
            for name in certs.names(cert):
                conflicts.update((name, owner) for owner in self._names.owners(host, name))
        shared = set(self._names.for_host(host))  # virt:pki:names assigns it to both
        return [
            f"the host has, or had, a certificate for {name}, a name of {owner}: run salt-run "
            f"virt.revoke {host} force=True, then salt-run virt.revoke {host} undo=True, and "
            "apply virt.keys"
            for name, owner in sorted(conflicts)
            if name not in shared
        ]

    def summary(
        self, host: str, answer: HostAnswer[CertificateInfo] | None, is_revoked: bool
    ) -> dict[str, Any]:
        """The host's ``certificates`` and ``problems``, and ``revoked`` or what it has answered."""
        try:
            stored = self.certificates(host) if self.store.host(host).is_dir() else {}
        except VirtError as exc:
            return {"certificates": {}, "problems": [str(exc)]}
        if is_revoked:
            return {"certificates": stored, "problems": [], "revoked": True}
        problems_ = [f"{use}: {details['problem']}: apply virt.keys"
                     for use, details in stored.items() if "problem" in details]  # fmt: skip
        missing = ["the host has no certificates: apply virt.keys"]
        problems_ += self.foreign_names(host) if stored else missing
        summary: dict[str, Any] = {"certificates": stored, "problems": problems_}
        if answer is not None and not answer.ok:
            problems_.append(answer.error or "")
        elif answer is not None:
            info = answer.get()
            summary["daemon"] = info.daemon
            problems_ += [*info.problems, *compare(stored, info.certs)]
        return summary


def compare(
    records_: Mapping[str, dict[str, Any]], installed: Mapping[str, InstalledCertificate]
) -> list[str]:
    """Messages about differences between the master's records and the host's certificates."""
    differences = []
    for use, details in records_.items():
        present = installed.get(use)
        if present is None:
            differences.append(f"{use}: missing on the host: apply virt.keys")
        elif present.sha256 != details["sha256"]:
            differences.append(
                f"{use}: the host has a different one ({present.issuer}): apply virt.keys"
            )
    differences += [
        f"{use}: not issued by this master ({installed[use].issuer}): apply virt.keys"
        for use in set(installed) - set(records_)
    ]
    return differences


def update(
    fleet: Fleet, hosts: Collection[str], report: Callable[[str], object]
) -> dict[str, HostAnswer[CertificateUpdate]]:
    """Make hosts fetch and install their certificates. Returns {host: Answer}."""
    replies = UPDATE_CERTIFICATES.replies(fleet, hosts, HostRequest(), timeout_s=UPDATE_TIMEOUT_S)
    answers = {}
    for answer in replies:
        answers[answer.host] = answer
        report(f"{answer.host}: {_outcome(answer)}")
    return answers


def _outcome(answer: HostAnswer[CertificateUpdate]) -> str:
    if not answer.ok:
        return answer.error or ""
    changes = answer.get().changes
    return f"updated {', '.join(sorted(changes))}" if changes else "nothing to do"


def revoke(
    fleet: Fleet,
    store: CertificateStore,
    host: str,
    report: Callable[[str], object],
    is_hypervisor: bool = False,
) -> dict[str, str]:
    """Revoke a host's certificates and update all other hosts. Returns {host: error} of the hosts
    that were not updated.

    is_hypervisor: the host may never have had a certificate; no other host is updated then. Raises
    NotFound for a host that never had any and is no hypervisor.
    """
    count = crl.revoke(store, host, is_hypervisor)
    if not count:
        report(f"{host}: has no certificates, and can request none")
        return {}
    revoked_count = units.pluralize(count, "certificate")
    report(f"{host}: {revoked_count} revoked; the host can request no new ones")
    revoked = {host, *crl.record(store)["hosts"]}  # the master gives a revoked one no list
    valid = [hypervisor for hypervisor in _own_hypervisors(fleet) if hypervisor not in revoked]
    answers = update(fleet, valid, report)
    return {name: item.error or "" for name, item in sorted(answers.items()) if not item.ok}


def _own_hypervisors(fleet: Fleet) -> list[str]:
    """The hypervisors of this master; those of a syndic have certificates of their own master."""
    try:
        hypervisors: list[str] = fleet.direct_hosts()
    except NotFound:
        return []
    return hypervisors


def rotate(
    fleet: Fleet,
    store: CertificateStore,
    rules: CertificatePolicy,
    skip: Collection[str],
    report: Callable[[str], object],
) -> tuple[str | None, dict[str, str]]:
    """Continue the replacement of the CAs, or begin one, as far as all hosts follow.

    skip: hosts that are not waited for. Returns (current phase, None when done; {host: what it
    lacks}). Raises PkiError if a CA cannot be read or, by this master's clock, is not valid yet,
    and NotFound for an unknown host in ``skip``.
    """
    hosts = _expected_hosts(fleet, store, skip)
    responder.prepare(store, rules)
    expired = _expired(store)
    rotation.begin(store, rules)
    if rotation.phase(store) == rotation.TRUST:
        report("step 1: all hosts start to trust the new CA in addition to the old one")
        lacking = {} if expired else _lacking_hosts(fleet, store, hosts, report)
        lacking.update(_unmatched(store, {*hosts, *skip}))
        if lacking:
            return rotation.TRUST, lacking
        rotation.swap(store)
    report("step 2: all hosts receive certificates of the new CA")
    lacking = {**_lacking_hosts(fleet, store, hosts, report), **_unmatched(store, {*hosts, *skip})}
    if lacking:
        return rotation.REISSUE, lacking
    rotation.finish(store)
    report("step 3: all hosts stop trusting the old CA")
    answers = update(fleet, hosts, report)
    return None, {name: item.error or "" for name, item in answers.items() if not item.ok}


def rotation_plan(
    fleet: Fleet, store: CertificateStore, skip: Collection[str]
) -> tuple[str | None, dict[str, str | None]]:
    """(phase of the replacement, None if there is none; {host: why it does not respond, or None}).
    Changes nothing."""
    hosts = _expected_hosts(fleet, store, skip)
    answers = {item.host: item.error for item in CERTIFICATES.replies(fleet, hosts, HostRequest())}
    errors_by_host = {host: answers.get(host) for host in sorted(hosts)}
    return rotation.phase(store), {**errors_by_host, **_unmatched(store, {*hosts, *skip})}


def _expected_hosts(fleet: Fleet, store: CertificateStore, skip: Collection[str]) -> list[str]:
    """The hypervisors that must complete each step. Raises NotFound for an unknown host in
    ``skip``."""
    hypervisors, revoked = fleet.direct_hosts(), set(crl.record(store)["hosts"])
    unknown = sorted({*skip}.difference(hypervisors, store.hosts()))
    if unknown:
        raise NotFound(f"skip: this master has no hypervisor {', '.join(unknown)}")
    return [host for host in hypervisors if host not in {*skip, *revoked}]


def _unmatched(store: CertificateStore, followers: Collection[str]) -> dict[str, str]:
    """{host: why it completes no step}, of hosts with a valid certificate that virt:hosts does not
    match: they receive no certificates, so the end of the replacement would lock them out.

    followers: hosts that complete the steps or are skipped.
    """
    if not store.base.is_dir():
        return {}
    is_new = rotation.phase(store) == rotation.REISSUE
    out = {*followers, *crl.record(store)["hosts"]}
    unmatched = {}
    for host in sorted({*store.hosts()} - out):
        stored = filter(None, (issue.stored_cert(store.host(host), use) for use in USES))
        valid = [cert for cert in stored if certs.not_after(cert) > store.now()]
        if is_new:  # a host with certificates of the new CA only does not need the old one
            signers = [ca.read(store, name).cert for name in AUTHORITIES]
            valid = [cert for cert in valid if not any(certs.signed_by(cert, s) for s in signers)]
        if valid:
            unmatched[host] = (
                f"virt:hosts does not match this host: run salt-run virt.revoke {host} if "
                f"it is gone; skip={host} locks it out"
            )
    return unmatched


def _expired(store: CertificateStore) -> bool:
    """Whether the old CA has expired, so that no host needs to be waited for. Raises PkiError if
    that cannot be determined: a CA cannot be read or, by this master's clock, is not valid yet."""
    certificates = [ca.read(store, name).cert for name in AUTHORITIES]
    if any(certs.not_after(cert) <= store.now() for cert in certificates):
        return True
    for cert in certificates:
        ca.check_time(cert, store)
    return False


def _lacking_hosts(
    fleet: Fleet, store: CertificateStore, hosts: Collection[str], report: Callable[[str], object]
) -> dict[str, str]:
    """{host: what it lacks for the next step}. Updates the hosts first."""
    answers = update(fleet, hosts, report)
    expected = rotation.expected(store)
    lacking = {}
    for host, item in sorted(answers.items()):
        reason = item.error if not item.ok else _missing_reason(item.get().info, expected, store)
        if reason:
            lacking[host] = reason
    return lacking


def _missing_reason(
    info: CertificateInfo, expected: Mapping[str, set[str]], store: CertificateStore
) -> str | None:
    if not expected["trusted"] <= set(info.trusted):
        return "does not trust both CAs"
    if rotation.phase(store) == rotation.REISSUE:
        issuers = {certificate.issuer for certificate in info.certs.values()}
        if not issuers <= expected["issuers"]:
            return "still has certificates of the old CA"
    return None if info.daemon in ("serves", "does not listen") else info.daemon


def overview(
    fleet: Fleet,
    store: CertificateStore,
    rules: CertificatePolicy,
    only: str | None = None,
    ask: bool = True,
) -> dict[str, Any]:
    """``CA``: the authorities; ``hosts``: host to its ``certificates`` by use, ``problems``
    (messages), ``revoked``, and ``daemon`` if the host was asked."""
    hypervisors = set(_own_hypervisors(fleet))
    if only and only not in hypervisors and not store.host(only).is_dir():
        raise NotFound(f"{only} is not a hypervisor of this master and never had a certificate")
    hosts = [only] if only else sorted({*store.hosts(), *hypervisors})
    revoked = set(crl.record(store)["hosts"])
    queried = [host for host in hosts if host in hypervisors and host not in revoked] if ask else []
    answers = {item.host: item for item in CERTIFICATES.replies(fleet, queried, HostRequest())}
    records = HostRecords(store, rules, hypervisors)
    summaries = {host: records.summary(host, answers.get(host), host in revoked) for host in hosts}
    for host in {*hosts} - hypervisors - revoked:
        summaries[host]["problems"].append(
            f"virt:hosts does not match this host; if it is gone, run salt-run virt.revoke {host}"
        )
    return {"CA": authorities(store) if store.base.is_dir() else {}, "hosts": summaries}


_HEAD = ["host", "certificate", "for", "by", "until", "days left", "renewed from", "problem"]
# left out on a narrow terminal, in this order
COLUMNS = {
    "by": {"drop": 0, "whole": True},
    "renewed from": {"drop": 1},
    "for": {"drop": 2, "whole": True},
}


def table(summary: Mapping[str, Any]) -> list[list[Any]]:
    """The rows of ``virt.certs`` on a terminal."""
    rows = [_HEAD]
    for name, details in summary["CA"].items():
        if "subject" in details:
            end = details["not_after"][:10]
            state = details.get("problem", "")
            identity = ["CA", name, "", _name(details["subject"])]
            rows.append([*identity, end, details["days_left"], "", state])
    for host, details in summary["hosts"].items():
        for use, cert in details["certificates"].items():
            state = "revoked" if details.get("revoked") else cert.get("problem", "")
            identity = [host, use, " ".join(cert["names"]), _name(cert["issuer"])]
            validity = [cert["not_after"][:10], cert["days_left"], cert["renewed"]]
            rows.append([*identity, *validity, state])
    return rows


def _name(distinguished: str) -> str:
    """The common name in a distinguished name."""
    parts = [part for part in distinguished.split(",") if part.startswith("CN=")]
    return parts[0].removeprefix("CN=") if parts else distinguished


def problems(summary: Mapping[str, Any]) -> dict[str, str]:
    """{host or CA: its problems on one line}."""
    by_name = {f"CA {name}": [details["problem"]] for name, details in summary["CA"].items()
               if "problem" in details}  # fmt: skip
    by_name.update({host: details["problems"] for host, details in summary["hosts"].items()})
    return {name: "; ".join(texts) for name, texts in by_name.items() if texts}
