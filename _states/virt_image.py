"""
State for the image cache of a hypervisor.

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
    Ensure that an image is in this hypervisor's cache, so that the next guest need not wait for it.

    The master limits the number of hosts that copy at the same time; other hosts wait.

    If the source has a new version, it is fetched. The old version is kept for disks that are based
    on it; ``virt.image_prune`` removes unused images.

    :param name: ``salt://…``, ``http(s)://…`` or ``ftp://…``; or an absolute path or
        ``pool://POOL/VOLUME``, which is only inspected
    :param image_hash: expected sha256 or sha512, or the URL of a file that lists it, such as
        ``https://…/SHA256SUMS``
    :param saltenv: environment of a ``salt://`` image

    :return: ``changes`` has ``image``: ``old``, the files of earlier versions, and ``new``, the
        source. With ``test=True`` nothing is fetched. If an error occurs or a parameter is unknown,
        ``result`` is False and the comment has the reason.

    .. code-block:: yaml

        salt://debian.qcow2:
          virt.image_cached

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' state.single virt.image_cached salt://debian.qcow2
    """
    return result.run("virt.image_cached", locals(), __salt__, __opts__["test"], images.cached)
