"""
The certificates of a hypervisor, as state ``virt.keys``.

.. code-block:: yaml

    libvirt_keys:
      virt.keys

Works without the libvirt binding. See docs/certificates.md.
"""

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.errors import VirtError
from saltvirt.minion import client
from saltvirt.pki.host import converge

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
    ret = {"name": name, "changes": {}, "result": True, "comment": "All keys are correct"}
    try:
        wishes = converge.wishes({k: v for k, v in kwargs.items() if not k.startswith("__")})
        host = converge.Host(__opts__["id"], _pillar_ext, basepath, wishes, reload)
        outcome = converge.plan(host) if __opts__["test"] else converge.converge(host)
    except VirtError as exc:
        return {**ret, "result": False, "comment": str(exc)}
    ret["changes"] = outcome.changes
    if outcome.changes and __opts__["test"]:
        ret.update(result=None, comment="Libvirt keys are set to be updated")
    elif outcome.changes:
        ret["comment"] = ". ".join(["Updated libvirt certs and keys", *outcome.notes])
    return ret


def _pillar_ext(external):
    return client.ask(__salt__["pillar.ext"], external)
