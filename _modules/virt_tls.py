"""
The certificates of a hypervisor. Needs no libvirt binding.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()
with saltvirt.later():
    from saltvirt import settings
    from saltvirt.fleet.minion import client
    from saltvirt.pki.host import converge, request
    from saltvirt.pki.host import info as certificates

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def tls_info(basepath="/etc/pki"):
    """
    The certificates that are here, the CAs that are trusted, and whether the daemon
    serves them. No key is in the answer.

    :param basepath: the folder that has ``CA``, ``libvirt`` and ``qemu`` below it

    :return: ``certs``: use (``server``, ``client``, ``qemu-server``, ``qemu-client``) to
        ``subject``, ``issuer``, ``serial``, ``names``, ``not_before``, ``not_after`` (UTC)
        and ``sha256``; ``trusted``: SHA-256 of the CAs' certificates; ``daemon``:
        ``serves``, ``does not listen`` or why a TLS handshake failed; ``problems``: a
        sentence for each thing that is wrong

    CLI Example:

    .. code-block:: bash

        salt 'hv*' virt.tls_info
    """
    return certificates.info(__opts__["id"], basepath)


def tls_update(basepath="/etc/pki", reload=None, test=False, **kwargs):
    """
    Fetches certificates from the master, places them and has the daemon read them: what
    the state ``virt.keys`` does, with the same parameters.

    :param basepath: the folder that has ``CA``, ``libvirt`` and ``qemu`` below it
    :param reload: how the daemon is told, as for the state ``virt.keys``
    :param test: only tell what would change; nothing is made, here or on the master

    :return: ``changes``: file to what was done with it; ``notes``: sentences; and ``info``:
        as ``virt.tls_info`` afterwards

    :raises PkiError: the master gives none; with the reason

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
        "info": certificates.info(__opts__["id"], basepath),
    }


def tls_allowed():
    """
    What ``tls_allowed_dn_list`` of the daemon must be to let in the hypervisors of this
    cluster only: the names in their client certificates, in the orders that releases of
    libvirt write them in. A revoked host is not in it.

    :return: list of patterns

    CLI Example:

    .. code-block:: bash

        salt hv1 virt.tls_allowed
    """
    return request.patterns(request.subjects(_pillar_ext, __opts__["id"]))


def _pillar_ext(external):
    return client.ask(__salt__["pillar.ext"], external)
