"""
What hypervisors and new guests ask this master for: ext_pillar ``virtkey``.

A hypervisor that made a guest hands its minion's key in, through ``pillar.ext`` in ``virt.init``
and ``seed.apply``. The key is accepted only when this master gave that hypervisor the permission
for that name (``salt-run virt.authorize web1 hv1``), which is good for ten minutes and for one
key. While an operation of the runner makes a guest, its hypervisor asks for what is secret of the
arguments. A hypervisor that wants to copy an image from this master asks for its turn. Salt allows
this pillar to be asked for by default (``on_demand_ext_pillar``).

For ``salt-run virt.init … pillar=…`` it has to be in the master's configuration, too: it gives
each guest the pillar that was recorded for it, and to no other minion.

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
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.pki.common import seal as sealing

if TYPE_CHECKING:
    from salt_dunders import __opts__


def ext_pillar(minion_id, pillar, name=None, key=None, copy=None, done=False, seal=None):
    """The minion's own pillar; or ``{"virtkey": …}`` with the answer to what it asks.

    :param minion_id: who asks, verified by Salt
    :param name: the guest's minion id, from a hypervisor that hands in its key
    :param key: the guest's public key in PEM; the answer is ``{name: True}`` when it was
        accepted, ``{name: False}`` when it was not
    :param copy: the image that a hypervisor wants to copy, as 40 hexadecimal digits; the answer
        is ``{"turn": number}``: it may copy when that is 0, else so many are before it
    :param done: it has copied the image
    :param seal: the key of a hypervisor that makes the guest ``name``; the answer is ``{"sealed":
        …}``: the arguments that may be secret, from an operation of this master that is under way

    CLI Example:

    .. code-block:: bash

        salt hv1 pillar.ext '{"virtkey": ["web1", "-----BEGIN PUBLIC KEY-----…"]}'
    """
    if __opts__.get("__role") == "minion":
        return {}
    # longer is no name and no key, and is not to be answered with or logged
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
