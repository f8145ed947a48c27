"""The CA changed for another, in steps after each of which every host can talk to every other.

==========  ===================  ==========================  =====================
phase       certificates are of  hosts are told to trust     it may go on when
==========  ===================  ==========================  =====================
trust       the old CA           the old and the new         all hosts trust both
reissue     the new CA           the old and the new         all have new ones
(none)      the new CA           the new
==========  ===================  ==========================  =====================

The phase is in ``rotation.json``; ``swapping`` stands between the first two, and whoever
finds it finishes the swap.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from saltvirt.errors import PkiError
from saltvirt.pki.authority import ca, crl
from saltvirt.pki.authority.store import AUTHORITIES
from saltvirt.pki.common import certs, files

if TYPE_CHECKING:
    from saltvirt.pki.authority.policy import CertificatePolicy
    from saltvirt.pki.authority.store import CertificateStore

log = logging.getLogger(__name__)

RECORD = "rotation.json"
TRUST, SWAPPING, REISSUE = "trust", "swapping", "reissue"


def phase(store: CertificateStore) -> str | None:
    """The phase of a rotation that is under way, or None."""
    current: str | None = store.record(RECORD, {}).get("phase")
    return current


def begin(store: CertificateStore, policy: CertificatePolicy) -> None:
    """Makes the new CAs, unless a rotation is under way. A pair of files that an operator
    put there as ``next-cakey.pem`` and ``next-cacert.pem`` is used instead; half a pair, which may
    also be of a process that died, is kept under another name."""
    with store.exclusive():
        if phase(store):
            return
        _forget_old(store)
        for name in AUTHORITIES:
            key_path, cert_path = ca.paths(store, name, "next-")
            if key_path.exists() and cert_path.exists():
                ca.check_time(ca.read(store, name, "next-").cert, store)
            else:
                for path in filter(Path.exists, (key_path, cert_path)):
                    saved_path = path.with_name(f"{path.name}.{store.now():%Y%m%dT%H%M%S%f}")
                    files.rename(path, saved_path)
                    log.warning("%s is half a pair: it is kept as %s", path, saved_path)
                ca.prepare(store, policy, name)
        store.write_record(RECORD, {"phase": TRUST, "began": store.now().isoformat()})
        _lists(store)


def swap(store: CertificateStore) -> None:
    """From ``trust`` to ``reissue``: the new CA signs from now on."""
    with store.exclusive():
        if phase(store) != TRUST:
            raise PkiError(f"the rotation is in phase {phase(store)}, not in {TRUST}")
        for name in AUTHORITIES:
            for present in ca.paths(store, name):
                _content(present)
        store.write_record(RECORD, {**store.record(RECORD, {}), "phase": SWAPPING})
        _swap(store)


def resume(store: CertificateStore) -> None:
    """Finishes a swap that a crash left in the middle."""
    if phase(store) == SWAPPING:
        with store.exclusive():
            if phase(store) == SWAPPING:
                _swap(store)


def _content(present: Path) -> bytes:
    content = files.read(present)
    if content is None:
        raise PkiError(f"{present} is missing: put it back, then rotate again")
    return content


def _swap(store: CertificateStore) -> None:
    """Every step can be done again: old-* is written once, next-* is moved once."""
    for name in AUTHORITIES:
        generations = (ca.paths(store, name, kind) for kind in ("", "next-", "old-"))
        kinds = list(zip(*generations, strict=True))
        for present, _next, old in kinds:
            if not old.exists():
                files.write(old, _content(present))
        for present, coming, _old in kinds:
            if coming.exists():
                files.rename(coming, present)
    store.write_record(RECORD, {**store.record(RECORD, {}), "phase": REISSUE})
    _lists(store)


def finish(store: CertificateStore) -> None:
    """Forgets the old CA and destroys its key."""
    with store.exclusive():
        if phase(store) != REISSUE:
            raise PkiError(f"the rotation is in phase {phase(store)}, not in {REISSUE}")
        store.write_record(RECORD, None)
        _forget_old(store)
        _lists(store)


def _forget_old(store: CertificateStore) -> None:
    for name in AUTHORITIES:
        for path in ca.paths(store, name, "old-"):
            path.unlink(missing_ok=True)
    files.sync_folder(store.base)


def _lists(store: CertificateStore) -> None:
    if crl.revoked_serials(store):
        crl.rebuild(store)


def expected(store: CertificateStore) -> dict[str, set[str]]:
    """What a host must have for the phase: ``trusted``, SHA-256 of CAs; ``issuers``, names."""
    with store.exclusive():
        authorities = {name: ca.read(store, name) for name in AUTHORITIES}
    trusted = {
        certs.fingerprint(c) for a in authorities.values() for c in (*a.chain, *a.also_trusted)
    }
    return {
        "trusted": trusted,
        "issuers": {a.cert.subject.rfc4514_string() for a in authorities.values()},
    }
