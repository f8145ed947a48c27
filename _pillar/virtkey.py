"""Accepts a new guest's minion key from the hypervisor that made it.

Asked for by ``virt.init`` and ``seed.apply`` on a hypervisor, through ``pillar.ext``. The key is
accepted only when this master gave that hypervisor the permission for that name (``salt-run
virt.authorize web1 hv1``), which is good for ten minutes and for one key. Salt allows this
pillar to be asked for by default (``on_demand_ext_pillar``).
"""

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.fleet import authorise  # noqa: E402
from saltvirt.fleet.keys import KeyStore  # noqa: E402


def ext_pillar(minion_id, pillar, name=None, key=None):
    """``{"virtkey": {name: True}}`` when the key was accepted, False when it was not.

    :param minion_id: the hypervisor, as the master knows it
    :param name: the guest's minion id, from the hypervisor
    :param key: the guest's public key in PEM, from the hypervisor

    CLI Example:

    .. code-block:: bash

        salt hv1 pillar.ext '{"virtkey": ["web1", "-----BEGIN PUBLIC KEY-----…"]}'
    """
    if not name or not key:
        return {}
    done = authorise.hand_in(__opts__, KeyStore(__opts__), minion_id, str(name), str(key))
    return {"virtkey": {str(name): done}}
