"""
Requests of hypervisors and new guests to this master: ext_pillar ``virtkey``.

A hypervisor that created a guest submits the guest's minion key through ``pillar.ext`` in
``virt.init`` and ``seed.apply``. The key is only accepted if this master has authorized that
hypervisor for that name (``salt-run virt.authorize web1 hv1``), for ten minutes and a single key.
While a runner operation creates a guest, its hypervisor requests the secret arguments. A hypervisor
that wants to copy an image from this master requests its turn. Salt permits requests for this
pillar by default (``on_demand_ext_pillar``).

For ``salt-run virt.init … pillar=…``, it must also be configured as ext_pillar of the master: it
returns the recorded pillar to each guest, and to no other minion.

.. code-block:: yaml

    ext_pillar:
      - virtkey: _
"""

import base64
import binascii
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt import errors
from saltvirt.fleet import authorization, download_queue, target
from saltvirt.fleet import seal as sealing
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars

if TYPE_CHECKING:
    from salt_dunders import __opts__


def ext_pillar(minion_id, pillar, name=None, key=None, copy=None, done=False, seal=None):
    """Return the minion's own pillar; or ``{"virtkey": …}`` with the answer to its request.

    :param minion_id: the requesting minion, verified by Salt
    :param name: the guest's minion id, from a hypervisor that submits its key
    :param key: the guest's public key in PEM; the answer is ``{name: True}`` if it was accepted,
        otherwise ``{name: False}``
    :param copy: the image that a hypervisor wants to copy, as 40 hexadecimal digits; the answer is
        ``{"turn": number}``, the number of hosts before it: it may copy if that is 0
    :param done: the image has been copied
    :param seal: public key of a hypervisor that creates the guest ``name``; the answer is
        ``{"sealed": …}``: the secret arguments of a running operation of this master

    CLI Example:

    .. code-block:: bash

        salt hv1 pillar.ext '{"virtkey": ["web1", "-----BEGIN PUBLIC KEY-----…"]}'
    """
    if __opts__.get("__role") == "minion":
        return {}
    # longer values are neither names nor keys, and must not be returned or logged
    name, key = (
        text and str(text)[:max_length] for text, max_length in ((name, 256), (key, 16_384))
    )
    if copy:
        if minion_id not in target.hosts(__opts__):
            return {}
        turn = download_queue.DownloadQueue(__opts__).ask(minion_id, str(copy), bool(done))
        return {"virtkey": {"turn": turn}}
    if name and seal:
        secret = authorization.Authorizations(__opts__).secret(minion_id, name)
        receiver = _key(seal)
        return {"virtkey": {"sealed": sealing.seal(receiver, minion_id, secret)} if secret else {}}
    if not name or not key:
        return Pillars(__opts__).load(minion_id, KeyStore(__opts__).accepted)
    accepted = authorization.submit_key(__opts__, KeyStore(__opts__), minion_id, name, key)
    return {"virtkey": {name: accepted}}


def _key(seal):
    try:
        return base64.b64decode(str(seal))
    except (binascii.Error, ValueError):
        raise errors.InvalidInput("seal is not base64") from None
