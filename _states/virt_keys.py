"""
The certificates of a hypervisor, as state ``virt.keys``.

.. code-block:: yaml

    libvirt_keys:
      virt.keys

Works without the libvirt binding. See docs/certificates.md.
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
    Places CA, server and client certificates and keys for libvirt and QEMU, and has the
    running daemon read them.

    :param name: of the state; nothing else is made of it
    :param basepath: the folder that has ``CA``, ``libvirt`` and ``qemu`` below it
    :param reload: whether the daemon is told, and a TLS handshake proves it; by default when
        ``basepath`` is ``/etc/pki``, which is where libvirt reads
    :param country: and ``state``, ``locality``, ``organization``: parts of the certificates'
        subject, where the master sets none in ``virt:pki``
    :param expiration_days: days that the certificates shall be valid, at most ``virt:pki:days``
        of the master (365). They are renewed when less than a third is left

    ``changes`` names each file with ``new``, ``update`` … and never shows a key. With
    ``test=True`` nothing is made, here or on the master. When the master gives no
    certificates, ``result`` is False and the comment says why.

    CLI Example:

    .. code-block:: bash

        salt 'hv*' state.single virt.keys name=libvirt_keys
    """
    return result.run(
        "virt.keys", locals(), __salt__, __opts__["test"], certificates.placed, certificates.SUBJECT
    )
