"""
Certificates of the cloud: shown, revoked, moved to another CA. See docs/certificates.md.
"""

import logging
from typing import TYPE_CHECKING

import salt.utils.data

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.fleet.client import Fleet
from saltvirt.operations.core import result

with saltvirt.later():
    from saltvirt import errors, units
    from saltvirt.operations.access import revocation
    from saltvirt.operations.core import report
    from saltvirt.pki.authority import cloud, crl, policy, responder
    from saltvirt.pki.authority import store as stores
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"

log = logging.getLogger(__name__)


def __virtual__():
    return __virtualname__


def _get(key, default=None):
    return salt.utils.data.traverse_dict_and_list(__opts__, key, default)


def _show(text):
    """A line for the person who waits."""
    log.info(text)
    report.screen(__salt__, __opts__).line(text)


@result.reporting
def certs(host=None, ask=True):
    """
    For each hypervisor: which certificates it has, for which names, by which CA, until
    when, from when they are renewed, and whether the host has the same.

    :param host: one hypervisor alone
    :param ask: False shows the master's records only, and asks no host

    :return: under ``certificates``: ``table``, ``CA`` (both authorities) and ``hosts``: host
        to ``certificates`` by use, ``problems``, ``revoked`` and ``daemon`` (as
        ``virt.tls_info``); under ``problems`` a line for each host that has one, and then
        the exit code is 1

    CLI Example:

    .. code-block:: bash

        salt-run virt.certs
        salt-run virt.certs hv1 --out=json
    """
    store, rules = stores.CertificateStore(__opts__["pki_dir"]), policy.policy(_get)
    with Fleet(__opts__) as fleet:
        overview = cloud.overview(fleet, store, rules, host, ask)
    wrong = cloud.problems(overview)
    answer = {"certificates": {"table": cloud.table(overview), **overview}}
    return {**answer, "problems": wrong, "retcode": 1} if wrong else answer


@result.reporting
def revoke(host, undo=False, force=False):
    """
    Makes all certificates of a hypervisor worthless, on every other hypervisor at once,
    and gives it no new ones. Connections that are open stay open until they are closed. Once
    ``virt:hosts`` does not match it, the master no longer waits for what it may have, such as
    guests and shared disks: also if guests were made on it and it never had a certificate.

    A host that still runs guests is refused, and so is one that does not answer and had guests
    that no other host has since: other hosts could start these guests a second time.

    :param host: minion id, which may be gone already
    :param undo: True lets the host have *new* certificates; the revoked ones stay revoked
    :param force: True revokes them also of a host that runs guests, or may run them

    :return: ``result``: True when every other hypervisor knows of it; else the comment
        names those that do not, and the exit code is 1

    CLI Example:

    .. code-block:: bash

        salt-run virt.revoke hv3
        salt-run virt.revoke hv3 force=True
        salt-run virt.revoke hv3 undo=True
    """
    store, rules = stores.CertificateStore(__opts__["pki_dir"]), policy.policy(_get)
    if undo:
        crl.readmit(store, host)
        comment = (
            f"{host} is admitted again: apply virt.keys there, which gives it new certificates"
        )
        return {host: {"result": True, "comment": comment}}
    with Fleet(__opts__) as fleet:
        if not force:
            revocation.refuse_running(fleet, host)
        responder.prepare(store, rules)
        late = cloud.revoke(fleet, store, host, _show, revocation.is_known(fleet, host))
    if not late:
        comment = f"the certificates of {host} are revoked on every hypervisor"
        return {host: {"result": True, "comment": comment}}
    return {
        host: {"result": False, "comment": f"the certificates of {host} are revoked, but "
               f"these hosts may still accept them: {_hosts_text(late)}: apply virt.keys there"},
        "retcode": 1,
    }  # fmt: skip


@result.reporting
def rotate_ca(skip=None, test=False):
    """
    Replaces both CAs, in steps between which every hypervisor can talk to every other:
    all learn to trust the new CA beside the old one, then all get certificates of the new
    one, then all forget the old one. Goes on as far as every host follows; run it again to
    go on from there. It also waits for a host that has good certificates and that
    ``virt:hosts`` does not match: match it again, or revoke it.

    :param skip: hypervisors that are not waited for, between commas; they are locked out
        until virt.keys is applied to them
    :param test: change nothing: say which hypervisors would get certificates of new CAs, and
        which of them do not answer

    :return: ``result``: True when the rotation is done; else the comment says in which
        step it waits, and for whom, and the exit code is 1. With ``test`` None, or False and the
        exit code 1 when a hypervisor does not answer

    CLI Example:

    .. code-block:: bash

        salt-run virt.rotate_ca test=True
        salt-run virt.rotate_ca
        salt-run virt.rotate_ca skip=hv7
    """
    store, rules = stores.CertificateStore(__opts__["pki_dir"]), policy.policy(_get)
    is_one = isinstance(skip, (str, int)) and not isinstance(skip, bool)
    names = str(skip).split(",") if is_one else skip or []
    if not isinstance(names, (list, tuple)):
        raise errors.InvalidInput(f"skip must be names of hosts, not {units.short_repr(skip)}")
    skipped = [name for name in (str(item).strip() for item in names) if name]
    if values.boolean(test, "test"):
        with Fleet(__opts__) as fleet:
            return _rotation_plan(*cloud.rotation_plan(fleet, store, skipped))
    with Fleet(__opts__) as fleet:
        phase, late = cloud.rotate(fleet, store, rules, skipped, _show)
    if phase is None and not late:
        return {
            "CA": {"result": True, "comment": "every hypervisor trusts the new CA and no other"}
        }
    if phase is None:
        comment = (
            f"the new CA is in use; still trusting the old one: {_hosts_text(late)}: apply "
            f"virt.keys "
            "there. To call this again would begin another rotation"
        )
    else:
        comment = (
            f"the rotation waits in phase '{phase}' for {_hosts_text(late)}. Nothing is broken "
            f"meanwhile: "
            "repair that and run salt-run virt.rotate_ca again"
        )
    return {"CA": {"result": False, "comment": comment}, "retcode": 1}


def _rotation_plan(phase, hosts):
    """The answer to ``test=True``."""
    silent = {host: reason for host, reason in hosts.items() if reason}
    announcement = (
        f"the rotation in phase '{phase}' would go on" if phase else "both CAs would be replaced"
    )
    comment = f"{announcement}, and the certificates of {', '.join(hosts) or 'no hypervisor'}"
    if not silent:
        return {"CA": {"result": None, "comment": comment}}
    comment += f"; it would wait for {_hosts_text(silent)}"
    return {"CA": {"result": False, "comment": comment}, "retcode": 1}


def _hosts_text(late):
    return "; ".join(f"{host} ({reason})" for host, reason in sorted(late.items()))
