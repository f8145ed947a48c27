"""
Manage the certificates of a hypervisor. Does not need the libvirt binding.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()
with saltvirt.later():
    from saltvirt import settings
    from saltvirt.fleet.minion import client
    from saltvirt.pki.host import converge, request
    from saltvirt.pki.host import info as certificate_info

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def tls_info(basepath="/etc/pki"):
    """
    Show the installed certificates, the trusted CAs, and whether the daemon uses them. Keys are not
    shown.

    :param basepath: folder that contains ``CA``, ``libvirt`` and ``qemu``

    :return: ``certs``: use (``server``, ``client``, ``qemu-server``, ``qemu-client``) to
        ``subject``, ``issuer``, ``serial``, ``names``, ``not_before``, ``not_after`` (UTC) and
        ``sha256``; ``trusted``: SHA-256 of the CA certificates; ``daemon``: ``serves``,
        ``does not listen`` or why a TLS handshake failed; ``problems``: one sentence for each
        problem

    CLI Example:

    .. code-block:: bash

        salt 'hv*' virt.tls_info
    """
    return certificate_info.info(__opts__["id"], basepath)


def tls_update(basepath="/etc/pki", reload=None, test=False, **kwargs):
    """
    Fetch certificates from the master, install them and make the daemon load them, like the state
    ``virt.keys``, with the same parameters.

    :param basepath: folder that contains ``CA``, ``libvirt`` and ``qemu``
    :param reload: whether the daemon reloads them, as for the state ``virt.keys``
    :param test: only show what would change; nothing is created, here or on the master

    :return: ``changes``: file to the action; ``notes``: sentences; and ``info``: as
        ``virt.tls_info``, after the change

    :raises PkiError: the master issues no certificates; the message has the reason

    CLI Example:

    .. code-block:: bash

        salt 'hv*' virt.tls_update
    """
    requested = converge.requests(settings.user_kwargs(kwargs))
    host = converge.TlsHost(__opts__["id"], _pillar_ext, basepath, requested, reload)
    outcome = converge.plan(host) if test else converge.converge(host)
    return {
        "changes": outcome.changes,
        "notes": outcome.notes,
        "info": certificate_info.info(__opts__["id"], basepath),
    }


def tls_allowed():
    """
    Return the value of ``tls_allowed_dn_list`` that only admits the hypervisors of this cluster:
    the names in their client certificates, in the orders that different releases of libvirt use.
    Revoked hosts are not included.

    :return: list of patterns

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.tls_allowed
    """
    return request.patterns(request.subjects(_pillar_ext, __opts__["id"]))


def _pillar_ext(external):
    return client.ask(__salt__["pillar.ext"], external)
