"""Certificates of the whole cloud: shown, revoked, and moved to another CA."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saltvirt import units
from saltvirt.errors import NotFound, VirtError
from saltvirt.pki.authority import ca, crl, issue, request_rules, responder, rotation
from saltvirt.pki.authority.store import AUTHORITIES, USES
from saltvirt.pki.common import certs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from cryptography.x509 import Certificate

    from saltvirt.fleet.answer import Answer
    from saltvirt.fleet.client import Fleet
    from saltvirt.pki.authority.policy import CertificatePolicy
    from saltvirt.pki.authority.store import Store

UPDATE = "virt.tls_update"
INFO = "virt.tls_info"
UPDATE_S = 120
# a CA with fewer days left is to be replaced: a rotation waits for each host
CA_DAYS = 60


def authorities(store: Store) -> dict[str, dict[str, Any]]:
    """{name: about its CA}, with ``problem`` where it cannot sign now, or ends soon."""
    found = {}
    for name in AUTHORITIES:
        try:
            authority = ca.read(store, name)
            about = certs.describe(authority.cert)
            about["days_left"] = (certs.not_after(authority.cert) - store.now()).days
            if certs.not_after(authority.cert) - store.now() < _last_days(authority.cert):
                about["problem"] = (
                    f"it ends on {about['not_after'][:10]}, and every certificate with it: "
                    "salt-run virt.rotate_ca"
                )
            if authority.also:
                about["also_trusted"] = [c.subject.rfc4514_string() for c in authority.also]
            ca.check_time(authority.cert, store)
        except VirtError as exc:
            about = {"problem": str(exc)}
        found[name] = about
    return found


def _last_days(cert: Certificate) -> datetime.timedelta:
    return min(datetime.timedelta(days=CA_DAYS), certs.lifetime(cert) / 3)


def records(
    store: Store, rules: CertificatePolicy, host: str, known: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """{use: what the master knows of the host's certificate}, with ``days_left``, ``renewed``
    (the day from which it is renewed) and ``wrong`` (why it will be replaced at once). known: the
    ids of all that virt:hosts names."""
    found = {}
    folder = store.host(host)
    case = _case(store, rules, host, folder, known)
    for use in USES:
        cert = issue.stored_cert(folder, use)
        if cert is None:
            continue
        end = certs.not_after(cert)
        about = certs.describe(cert)
        about["days_left"] = (end - store.now()).days
        about["renewed"] = (end - certs.lifetime(cert) / 3).date().isoformat()
        if rules.trust_grains:  # then the names are the host's own, which it tells when it asks
            case = replace(case, want=replace(case.want, names=tuple(certs.names(cert))))
        wrong = issue.fault(case, use, cert)
        if wrong:
            about["wrong"] = wrong
        found[use.name] = about
    return found


def _case(
    store: Store, rules: CertificatePolicy, host: str, folder: Path, known: Collection[str]
) -> issue.Case:
    """As for a request without any requested; the host's own grains are not known here."""
    names = responder.names_of_all(store, rules, known).of(host)
    found = {name: ca.read(store, name) for name in AUTHORITIES}
    want = issue.wanted(
        rules, request_rules.SigningRequest(), host, names, crl.revoked_serials(store)
    )
    return issue.Case(store, rules, folder, found, want)


def names_of_others(
    store: Store, rules: CertificatePolicy, host: str, known: Collection[str] = ()
) -> list[str]:
    """Sentences: which good certificate the host was given for a name that is another's now."""
    names, revoked = responder.names_of_all(store, rules, known), crl.revoked_serials(store)
    found: set[tuple[str, str]] = set()
    for cert in issue.issued(store.host(host)):
        if certs.serial(cert) in revoked or certs.not_after(cert) < store.now():
            continue
        for name in certs.names(cert):
            found.update((name, owner) for owner in names.owners(host, name))
    shared = set(names.of(host))  # virt:pki:names gives it to both
    return [
        f"it has, or had, a certificate for {name}, a name of {owner}: salt-run virt.revoke "
        f"{host} force=True, then salt-run virt.revoke {host} undo=True, and apply virt.keys"
        for name, owner in sorted(found)
        if name not in shared
    ]


def compare(records_: Mapping[str, dict[str, Any]], facts: Mapping[str, Any]) -> list[str]:
    """What differs between the master's record and what the host has: sentences."""
    found = []
    for use, about in records_.items():
        there = facts.get("certs", {}).get(use)
        if there is None:
            found.append(f"{use}: not on the host: apply virt.keys")
        elif there["sha256"] != about["sha256"]:
            found.append(f"{use}: the host has another one ({there['issuer']}): apply virt.keys")
    for use in set(facts.get("certs", {})) - set(records_):
        there = facts["certs"][use]
        found.append(f"{use}: not made by this master ({there['issuer']}): apply virt.keys")
    return found


def update(
    fleet: Fleet, hosts: Collection[str], report: Callable[[str], object]
) -> dict[str, Answer]:
    """Has the hosts fetch and place their certificates. {host: Answer}."""
    found = {}
    for answer in fleet.ask(hosts, UPDATE, timeout_s=UPDATE_S):
        found[answer.host] = answer
        report(f"{answer.host}: {_outcome(answer)}")
    return found


def _outcome(answer: Answer) -> str:
    if not answer.ok:
        return answer.error or ""
    changes = answer.data["changes"]
    return f"updated {', '.join(sorted(changes))}" if changes else "nothing to do"


def revoke(
    fleet: Fleet,
    store: Store,
    host: str,
    report: Callable[[str], object],
    known: bool = False,
) -> dict[str, str]:
    """Revokes a host's certificates, and tells every other host. {host: error} of who does
    not know of it yet. known: it is a hypervisor, also if it never had a certificate; then nobody
    has to be told. Raises NotFound for a host that never had any and is not known."""
    count = crl.revoke(store, host, known)
    if not count:
        report(f"{host}: it has no certificates, and gets none")
        return {}
    report(f"{host}: {units.counted(count, 'certificate')} revoked, and it gets no new ones")
    gone = {host, *crl.record(store)["hosts"]}  # the master gives a revoked one no list
    answers = update(fleet, [other for other in _own(fleet) if other not in gone], report)
    return {name: item.error or "" for name, item in sorted(answers.items()) if not item.ok}


def _own(fleet: Fleet) -> list[str]:
    """The hypervisors of this master; those below a syndic have certificates of their own one."""
    try:
        own: list[str] = fleet.own()
    except NotFound:
        return []
    return own


def rotate(
    fleet: Fleet,
    store: Store,
    rules: CertificatePolicy,
    skip: Collection[str],
    report: Callable[[str], object],
) -> tuple[str | None, dict[str, str]]:
    """Goes on with the rotation, or begins one, as far as all hosts follow.

    skip: hosts that are not waited for. Returns (phase it is in now or None when it is
    done, {host: what it lacks}). Raises PkiError when a CA cannot be read, or is not valid yet by
    this master's clock; NotFound for a host in ``skip`` that is none.
    """
    hosts = _waited_for(fleet, store, skip)
    responder.prepare(store, rules)
    expired = _expired(store)
    rotation.begin(store, rules)
    if rotation.phase(store) == rotation.TRUST:
        report("step 1: every host learns to trust the new CA beside the old one")
        late = {} if expired else _late(fleet, store, hosts, report)
        late.update(_unmatched(store, {*hosts, *skip}))
        if late:
            return rotation.TRUST, late
        rotation.swap(store)
    report("step 2: every host gets certificates of the new CA")
    late = {**_late(fleet, store, hosts, report), **_unmatched(store, {*hosts, *skip})}
    if late:
        return rotation.REISSUE, late
    rotation.finish(store)
    report("step 3: every host forgets the old CA")
    answers = update(fleet, hosts, report)
    return None, {name: item.error or "" for name, item in answers.items() if not item.ok}


def rotation_plan(
    fleet: Fleet, store: Store, skip: Collection[str]
) -> tuple[str | None, dict[str, str | None]]:
    """(phase of the rotation that is under way, None for none; {host that is waited for: why it
    does not answer, or None}). Changes nothing."""
    hosts = _waited_for(fleet, store, skip)
    answers = {item.host: item.error for item in fleet.ask(hosts, INFO)}
    found = {host: answers.get(host) for host in sorted(hosts)}
    return rotation.phase(store), {**found, **_unmatched(store, {*hosts, *skip})}


def _waited_for(fleet: Fleet, store: Store, skip: Collection[str]) -> list[str]:
    """The hypervisors that follow each step. Raises NotFound for one to skip that is none."""
    own, revoked = fleet.own(), set(crl.record(store)["hosts"])
    unknown = sorted({*skip}.difference(own, store.hosts()))
    if unknown:
        raise NotFound(f"skip: no hypervisor of this master is called {', '.join(unknown)}")
    return [host for host in own if host not in {*skip, *revoked}]


def _unmatched(store: Store, others: Collection[str]) -> dict[str, str]:
    """{host: why it follows no step}, of those that have a good certificate and that virt:hosts
    does not match: they are given nothing, and the end of the rotation would lock them out.
    others: who follows, or is to be skipped."""
    if not store.base.is_dir():
        return {}
    is_new = rotation.phase(store) == rotation.REISSUE
    out = {*others, *crl.record(store)["hosts"]}
    found = {}
    for host in sorted({*store.hosts()} - out):
        given = filter(None, (issue.stored_cert(store.host(host), use) for use in USES))
        good = [cert for cert in given if certs.not_after(cert) > store.now()]
        if is_new:  # who has certificates of the new CA alone needs the old one no more
            now = [ca.read(store, name).cert for name in AUTHORITIES]
            good = [cert for cert in good if not any(certs.signed_by(cert, one) for one in now)]
        if good:
            found[host] = (
                f"virt:hosts does not match it: salt-run virt.revoke {host} if it is gone; "
                f"skip={host} locks it out"
            )
    return found


def _expired(store: Store) -> bool:
    """True when nothing works with the old CA any more, so that there is nobody to wait for. Raises
    PkiError where that is not known: a CA cannot be read, or begins after now by this master's
    clock."""
    found = [ca.read(store, name).cert for name in AUTHORITIES]
    if any(certs.not_after(cert) <= store.now() for cert in found):
        return True
    for cert in found:
        ca.check_time(cert, store)
    return False


def _late(
    fleet: Fleet, store: Store, hosts: Collection[str], report: Callable[[str], object]
) -> dict[str, str]:
    """{host: what it lacks for the next step}. The hosts are updated first."""
    answers = update(fleet, hosts, report)
    expected = rotation.expected(store)
    found = {}
    for host, item in sorted(answers.items()):
        lacks = item.error if not item.ok else _lacks(item.data["info"], expected, store)
        if lacks:
            found[host] = lacks
    return found


def _lacks(facts: Mapping[str, Any], expected: Mapping[str, set[str]], store: Store) -> str | None:
    if not expected["trusted"] <= set(facts["trusted"]):
        return "it does not trust both CAs"
    if rotation.phase(store) == rotation.REISSUE:
        issuers = {about["issuer"] for about in facts["certs"].values()}
        if not issuers <= expected["issuers"]:
            return "it still has certificates of the old CA"
    if facts["daemon"] not in ("serves", "does not listen"):
        daemon: str = facts["daemon"]
        return daemon
    return None


def overview(
    fleet: Fleet, store: Store, rules: CertificatePolicy, only: str | None = None, ask: bool = True
) -> dict[str, Any]:
    """``CA``: about both authorities; ``hosts``: host to its ``certificates`` by use,
    ``problems`` (sentences), ``revoked``, and ``daemon`` when it was asked."""
    known = set(_own(fleet))
    if only and only not in known and not store.host(only).is_dir():
        raise NotFound(f"{only} is no hypervisor of this master and never had a certificate")
    hosts = [only] if only else sorted({*store.hosts(), *known})
    revoked = set(crl.record(store)["hosts"])
    asked = [host for host in hosts if host in known and host not in revoked] if ask else []
    answers = {item.host: item for item in fleet.ask(asked, INFO)}
    shown = {}
    for host in hosts:
        shown[host] = _one(store, rules, host, answers.get(host), revoked, known)
        if host not in known and host not in revoked:
            shown[host]["problems"].append(
                f"virt:hosts does not match it; if it is gone: salt-run virt.revoke {host}"
            )
    return {"CA": authorities(store) if store.base.is_dir() else {}, "hosts": shown}


_HEAD = ["host", "certificate", "for", "by", "until", "days left", "renewed from", ""]


def table(found: Mapping[str, Any]) -> list[list[Any]]:
    """The rows of ``virt.certs`` on a terminal."""
    rows = [_HEAD]
    for name, about in found["CA"].items():
        if "subject" in about:
            end = about["not_after"][:10]
            state = about.get("problem", "")
            what = ["CA", name, "", _name(about["subject"])]
            rows.append([*what, end, about["days_left"], "", state])
    for host, about in found["hosts"].items():
        for use, cert in about["certificates"].items():
            state = "revoked" if about.get("revoked") else cert.get("wrong", "")
            what = [host, use, " ".join(cert["names"]), _name(cert["issuer"])]
            when = [cert["not_after"][:10], cert["days_left"], cert["renewed"]]
            rows.append([*what, *when, state])
    return rows


def _name(distinguished: str) -> str:
    """The common name in a distinguished one."""
    parts = [part for part in distinguished.split(",") if part.startswith("CN=")]
    return parts[0].removeprefix("CN=") if parts else distinguished


def problems(found: Mapping[str, Any]) -> dict[str, str]:
    """{host or CA: its problems in one line}."""
    every = {name: [about["problem"]] for name, about in found["CA"].items() if "problem" in about}
    every = {f"CA {name}": texts for name, texts in every.items()}
    every.update({host: about["problems"] for host, about in found["hosts"].items()})
    return {name: "; ".join(texts) for name, texts in every.items() if texts}


def _one(
    store: Store,
    rules: CertificatePolicy,
    host: str,
    answer: Answer | None,
    revoked: Collection[str],
    known: Collection[str],
) -> dict[str, Any]:
    try:
        kept = records(store, rules, host, known) if store.host(host).is_dir() else {}
    except VirtError as exc:
        return {"certificates": {}, "problems": [str(exc)]}
    found: dict[str, Any] = {"certificates": kept, "problems": []}
    if host in revoked:
        return {**found, "revoked": True}
    found["problems"] += [f"{use}: {a['wrong']}: apply virt.keys" for use, a in kept.items()
                          if "wrong" in a]  # fmt: skip
    found["problems"] += names_of_others(store, rules, host, known) if kept else [
        "it has no certificates: apply virt.keys"
    ]  # fmt: skip
    if answer is None:
        return found
    if not answer.ok:
        found["problems"].append(answer.error)
        return found
    found["daemon"] = answer.data["daemon"]
    found["problems"] += [*answer.data["problems"], *compare(kept, answer.data)]
    return found
