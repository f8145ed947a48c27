"""
State for the certificates of a hypervisor.

.. code-block:: yaml

    libvirt_keys:
      virt.keys

Does not need the libvirt binding. See docs/how-to/certificates.md.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import certificates, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def keys(name, basepath="/etc/pki", reload=None, **kwargs):
    """
    Install the CA, server and client certificates and keys of libvirt and QEMU, and make the
    running daemon load them.

    :param name: name of the state; not used otherwise
    :param basepath: folder that contains ``CA``, ``libvirt`` and ``qemu``
    :param reload: whether the daemon reloads the certificates, which a TLS handshake verifies;
        default: if ``basepath`` is ``/etc/pki``, where libvirt reads them
    :param country: and ``state``, ``locality``, ``organization``: parts of the certificates'
        subject, unless the master's ``virt:pki`` sets them
    :param expiration_days: validity of the certificates in days, at most ``virt:pki:days`` of the
        master (365). They are renewed when less than a third is left

    :return: ``changes``: each file to ``new``, ``update`` and so on, never a key. With
        ``test=True`` nothing is created, here or on the master. If the master issues no
        certificates, ``result`` is False and the comment has the reason

    CLI Example:

    .. code-block:: bash

        salt 'hv*' state.single virt.keys name=libvirt_keys
    """
    return result.run(
        "virt.keys", locals(), __salt__, __opts__["test"], certificates.placed, certificates.SUBJECT
    )
