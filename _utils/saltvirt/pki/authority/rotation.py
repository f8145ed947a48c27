"""Replace the CAs in steps. After each step, every host can connect to every other host.

==========  ===================  ==========================  =====================
phase       certificates are of  hosts trust                 next step if
==========  ===================  ==========================  =====================
trust       the old CA           the old and the new CA      all hosts trust both
reissue     the new CA           the old and the new CA      all have new ones
(none)      the new CA           the new CA
==========  ===================  ==========================  =====================

The phase is stored in ``rotation.json``. Between the first two phases it is ``swapping``; a process
that finds this phase finishes the swap.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from saltvirt.errors import PkiError
from saltvirt.pki.authority import ca, crl
from saltvirt.pki.authority.store import AUTHORITIES
from saltvirt.pki.common import certs, files
from saltvirt.system import atomic_file

if TYPE_CHECKING:
    from saltvirt.pki.authority.policy import CertificatePolicy
    from saltvirt.pki.authority.store import CertificateStore

log = logging.getLogger(__name__)

RECORD = "rotation.json"
TRUST, SWAPPING, REISSUE = "trust", "swapping", "reissue"


def phase(store: CertificateStore) -> str | None:
    """The phase of the replacement, or None."""
    current: str | None = store.record(RECORD, {}).get("phase")
    return current


def begin(store: CertificateStore, policy: CertificatePolicy) -> None:
    """Create the new CAs unless a replacement is in progress.

    If an operator has stored ``next-cakey.pem`` and ``next-cacert.pem``, they are used. If only one
    of them exists, which a process that died may also leave, it is renamed.
    """
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
                    log.warning("%s is half of a pair: it is saved as %s", path, saved_path)
                ca.prepare(store, policy, name)
        store.write_record(RECORD, {"phase": TRUST, "began": store.now().isoformat()})
        _lists(store)


def swap(store: CertificateStore) -> None:
    """Change from ``trust`` to ``reissue``: the new CA signs from now on."""
    with store.exclusive():
        if phase(store) != TRUST:
            raise PkiError(f"the rotation is in phase {phase(store)}, not {TRUST}")
        for name in AUTHORITIES:
            for present in ca.paths(store, name):
                _content(present)
        store.write_record(RECORD, {**store.record(RECORD, {}), "phase": SWAPPING})
        _swap(store)


def resume(store: CertificateStore) -> None:
    """Finish a swap that a crash has interrupted."""
    if phase(store) == SWAPPING:
        with store.exclusive():
            if phase(store) == SWAPPING:
                _swap(store)


def _content(present: Path) -> bytes:
    content = files.read(present)
    if content is None:
        raise PkiError(f"{present} is missing: restore it, then run salt-run virt.rotate_ca again")
    return content


def _swap(store: CertificateStore) -> None:
    """Swap the CAs. Every step can be repeated: old-* is written once, next-* is moved once."""
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
    """Remove the old CA and its key."""
    with store.exclusive():
        if phase(store) != REISSUE:
            raise PkiError(f"the rotation is in phase {phase(store)}, not {REISSUE}")
        store.write_record(RECORD, None)
        _forget_old(store)
        _lists(store)


def _forget_old(store: CertificateStore) -> None:
    for name in AUTHORITIES:
        for path in ca.paths(store, name, "old-"):
            path.unlink(missing_ok=True)
    atomic_file.sync(store.base)


def _lists(store: CertificateStore) -> None:
    if crl.revoked_serials(store):
        crl.rebuild(store)


def expected(store: CertificateStore) -> dict[str, set[str]]:
    """What a host must have in this phase: ``trusted``, SHA-256 of CAs; ``issuers``, names."""
    with store.exclusive():
        authorities = {name: ca.read(store, name) for name in AUTHORITIES}
    trusted = {
        certs.fingerprint(c) for a in authorities.values() for c in (*a.chain, *a.also_trusted)
    }
    return {
        "trusted": trusted,
        "issuers": {a.cert.subject.rfc4514_string() for a in authorities.values()},
    }
