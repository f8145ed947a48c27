"""
Certificates of hypervisors: ext_pillar ``libvirt``.

The state ``virt.keys`` requests it on demand. Only the hypervisors have to be configured, in the
*master's* configuration:

.. code-block:: yaml

    virt:
      hosts: 'hv*'          # a compound target; prefer ids, lists and nodegroups

No certificates are created for a minion that ``virt:hosts`` does not match. To add the certificates
to the regular pillar of the hypervisors, too:

.. code-block:: yaml

    ext_pillar:
      - libvirt: _

The private keys are then part of that pillar, and of the master's caches of it; for the state, they
are sealed for the single request. See docs/how-to/certificates.md.
"""

import logging
from typing import TYPE_CHECKING

import salt.utils.data

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.pki.authority import responder

if TYPE_CHECKING:
    from salt_dunders import __opts__

__virtualname__ = "libvirt"

log = logging.getLogger(__name__)


def __virtual__():
    return __virtualname__


def ext_pillar(minion_id, pillar, command=None, **request):
    """
    Return the libvirt certificates of a hypervisor.

    minion_id
        The hypervisor; verified by Salt.

    pillar
        The pillar so far. Its keys ``ext_pillar_virt.country``, ``.state``, ``.locality``,
        ``.organization`` and ``.expiration_days`` are Salt's way to request parts of the
        certificate's subject and a *shorter* validity.

    command
        Ignored; Salt's documentation passes ``_``.

    request
        ``seal`` (base64: seal the private keys with this public key), ``csr`` (signing requests by
        use), ``dry`` (create nothing), ``country`` … ``expiration_days``.

    Returns ``libvirt.cacert.pem``, ``libvirt.servercert.pem``, ``libvirt.serverkey.pem``,
    ``libvirt.clientcert.pem``, ``libvirt.clientkey.pem``, the same with ``qemu-``, and
    ``libvirt.cacrl.pem`` if something is revoked; ``libvirt.error`` with a message if the master
    cannot issue them; ``{}`` for a minion that is not a hypervisor.

    CLI Example:

    .. code-block:: bash

        salt hv1 pillar.ext '{libvirt: _}'
    """
    if __opts__.get("__role") == "minion":
        log.info("the pillar libvirt issues no certificates, because there is no master")
        return {}
    call = (command, request, pillar)
    return responder.answer(__opts__, _get, minion_id, call, __opts__.get("grains") or {})


def _get(key, default=None):
    return salt.utils.data.traverse_dict_and_list(__opts__, key, default)
