"""
Show, revoke and rotate the certificates of the cloud. See docs/how-to/certificates.md.
"""

import logging
from typing import TYPE_CHECKING

import salt.utils.data

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import runner

with saltvirt.later():
    from saltvirt import errors, units
    from saltvirt.operations.access import revocation
    from saltvirt.operations.core import report
    from saltvirt.pki.authority import cloud, crl, policy, responder
    from saltvirt.pki.authority import store as authority_store
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
    """Print a progress line."""
    log.info(text)
    report.screen(__salt__, __opts__).line(text)


@runner.reporting
def certs(host=None, ask=True):
    """
    List the certificates of each hypervisor: names, CA, expiry, time of renewal, and whether the
    host has the same certificates as the master's records.

    :param host: minion id of a single hypervisor
    :param ask: False: show the master's records only, and query no host

    :return: under ``certificates``: ``table``, ``CA`` (both CAs) and ``hosts``: host to
        ``certificates`` by use, ``problems``, ``revoked`` and ``daemon`` (as ``virt.tls_info``);
        under ``problems`` one line for each host with a problem, and then the exit code is 1

    CLI Example:

    .. code-block:: bash

        salt-run virt.certs
        salt-run virt.certs hv1 --out=json
    """
    store, rules = authority_store.CertificateStore(__opts__["pki_dir"]), policy.policy(_get)
    with Fleet(__opts__) as fleet:
        overview = cloud.overview(fleet, store, rules, host, ask)
    problems = cloud.problems(overview)
    table = {
        "table": cloud.table(overview), "columns": cloud.COLUMNS, "empty": "no certificates",
    }  # fmt: skip
    answer = {"certificates": {**table, **overview}}
    return {**answer, "problems": problems, "retcode": 1} if problems else answer


@runner.reporting
def revoke(host, undo=False, force=False, test=False):
    """
    Revoke all certificates of a hypervisor on all other hypervisors, and issue no new ones to it.
    Open connections stay open until they are closed. Once ``virt:hosts`` no longer matches the
    host, the master does not consider any more what it may have, such as guests and shared disks;
    also if guests were created on it and it never had a certificate.

    Refused for a host that still runs guests, and for a host that does not answer and had guests
    that no other host has since: other hosts could start these guests a second time.

    :param host: minion id; the minion need not exist any more
    :param undo: True: let the host get *new* certificates; the revoked ones stay revoked
    :param force: True: revoke them even if the host runs guests, or may run them
    :param test: show how many certificates would be revoked, or every reason against it; change
        nothing

    :return: ``result``: True if all other hypervisors have the revocation; otherwise the comment
        lists those that do not, and the exit code is 1. With ``test`` None

    CLI Example:

    .. code-block:: bash

        salt-run virt.revoke hv3 test=True
        salt-run virt.revoke hv3
        salt-run virt.revoke hv3 force=True
        salt-run virt.revoke hv3 undo=True
    """
    store, rules = authority_store.CertificateStore(__opts__["pki_dir"]), policy.policy(_get)
    is_undo, is_forced = values.boolean(undo, "undo"), values.boolean(force, "force")
    if values.boolean(test, "test"):
        with Fleet(__opts__) as fleet:
            return revocation.check(fleet, store, host, undo=is_undo, force=is_forced).answer()
    if is_undo:
        crl.readmit(store, host)
        comment = (
            f"{host} is admitted again: apply virt.keys there, which gives it new certificates"
        )
        return {host: {"result": True, "comment": comment}}
    with Fleet(__opts__) as fleet:
        if not is_forced:
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


@runner.reporting
def rotate_ca(skip=None, test=False):
    """
    Replace both CAs in steps, so that all hypervisors can always connect to each other: all hosts
    trust the new CA in addition to the old one, then all get certificates of the new CA, then the
    old CA is removed. Each step waits for all hosts; run it again to continue. It also waits for a
    host with valid certificates that ``virt:hosts`` does not match: match it again, or revoke it.

    :param skip: hypervisors not to wait for, separated by commas; they are locked out until you
        apply ``virt.keys`` to them
    :param test: show which hypervisors would get certificates of new CAs, and which of them do not
        answer; change nothing

    :return: ``result``: True if the rotation is complete; otherwise the comment names the step and
        the hosts that it waits for, and the exit code is 1. With ``test`` None, or False and the
        exit code 1 if a hypervisor does not answer

    CLI Example:

    .. code-block:: bash

        salt-run virt.rotate_ca test=True
        salt-run virt.rotate_ca
        salt-run virt.rotate_ca skip=hv7
    """
    store, rules = authority_store.CertificateStore(__opts__["pki_dir"]), policy.policy(_get)
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
            "virt.keys there. Calling this again starts another rotation"
        )
    else:
        comment = (
            f"the rotation waits in phase '{phase}' for {_hosts_text(late)}. Nothing is broken "
            "meanwhile: fix the cause and run salt-run virt.rotate_ca again"
        )
    return {"CA": {"result": False, "comment": comment}, "retcode": 1}


def _rotation_plan(phase, hosts):
    """The answer for ``test=True``."""
    silent = {host: reason for host, reason in hosts.items() if reason}
    announcement = (
        f"the rotation in phase '{phase}' would continue" if phase else "both CAs would be replaced"
    )
    comment = f"{announcement}, and the certificates of {', '.join(hosts) or 'no hypervisor'}"
    if not silent:
        return {"CA": {"result": None, "comment": comment}}
    comment += f"; it would wait for {_hosts_text(silent)}"
    return {"CA": {"result": False, "comment": comment}, "retcode": 1}


def _hosts_text(late):
    return "; ".join(f"{host} ({reason})" for host, reason in sorted(late.items()))
