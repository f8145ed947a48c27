"""
Images in a hypervisor's cache as states.

:depends: qemu-img
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.states import images, result

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def image_cached(name, image_hash=None, saltenv="base", **kwargs):
    """
    Have an image in this hypervisor's cache, so that the next guest need not wait for it.

    The master lets only so many hosts copy at a time; the others wait for their turn.

    When there is a new version at the address it is fetched, and the old one stays for the
    disks that are based on it; ``virt.image_prune`` removes what nobody needs.

    :param name: ``salt://…``, ``http(s)://…``, ``ftp://…``; or an absolute path or
        ``pool://POOL/VOLUME``, which is only looked at
    :param image_hash: sha256 or sha512 that it must have, or the address of a file that lists
        it, such as ``https://…/SHA256SUMS``
    :param saltenv: where a ``salt://`` address is looked up

    :return: ``changes`` has ``image``: ``old``, the files of its earlier versions, and ``new``, the
        address. With ``test=True`` nothing is fetched. An error, or a parameter that there is
        not, makes ``result`` False and is named in the comment.

    .. code-block:: yaml

        salt://debian.qcow2:
          virt.image_cached

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.image_cached salt://debian.qcow2
    """
    return result.run("virt.image_cached", locals(), __salt__, __opts__["test"], images.cached)
