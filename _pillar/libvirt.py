"""
The certificates of hypervisors: ext_pillar ``libvirt``.

Asked on demand by the state ``virt.keys``; nothing has to be configured for that but
which minions are hypervisors, in the *master's* configuration:

.. code-block:: yaml

    virt:
      hosts: 'hv*'          # a compound target; prefer ids, lists and nodegroups

A minion that ``virt:hosts`` does not name gets nothing, and nothing is made for it.
To have the certificates in the regular pillar of the hypervisors as well:

.. code-block:: yaml

    ext_pillar:
      - libvirt: _

The private keys are then in that pillar, and in the master's caches of it; for the state
they are sealed to the one request. See docs/certificates.md.
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
    The libvirt certificates of a hypervisor.

    minion_id
        Whose; verified by Salt.

    pillar
        The pillar so far. ``ext_pillar_virt.country``, ``.state``, ``.locality``,
        ``.organization`` and ``.expiration_days`` in it are Salt's way of asking for
        parts of the certificate's subject and for a *shorter* lifetime.

    command
        Ignored; Salt's documents pass ``_``.

    request
        ``seal`` (base64: seal the private keys to this public key), ``csr`` (signing
        requests by use), ``dry`` (make nothing), ``country`` … ``expiration_days``.

    Returns ``libvirt.cacert.pem``, ``libvirt.servercert.pem``, ``libvirt.serverkey.pem``,
    ``libvirt.clientcert.pem``, ``libvirt.clientkey.pem``, the same with ``qemu-``, and
    ``libvirt.cacrl.pem`` where something is revoked; ``libvirt.error`` with one sentence
    when the master cannot give them; ``{}`` for a minion that is no hypervisor.

    CLI Example:

    .. code-block:: bash

        salt hv1 pillar.ext '{libvirt: _}'
    """
    if __opts__.get("__role") == "minion":
        log.info("no master here, so the libvirt pillar makes no certificates")
        return {}
    call = (command, request, pillar)
    return responder.answer(__opts__, _get, minion_id, call, __opts__.get("grains") or {})


def _get(key, default=None):
    return salt.utils.data.traverse_dict_and_list(__opts__, key, default)
