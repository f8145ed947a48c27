"""
Images in a hypervisor's cache as states.

:depends: qemu-img
"""

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt.host.provision import images_folder
from saltvirt.images import desired as images
from saltvirt.images import sources
from saltvirt.minion import files
from saltvirt.states import desired

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def image_cached(name, image_hash=None, saltenv="base", **kwargs):
    """
    Have an image in this hypervisor's cache, so that the next guest need not wait for it.

    When there is a new version at the address it is fetched, and the old one stays for the
    disks that are based on it; ``virt.image_prune`` removes what nobody needs.

    :param name: ``salt://…``, ``http(s)://…``, ``ftp://…``, or an absolute path, which is only
        looked at
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

        salt -b 4 'hyper*' state.single virt.image_cached salt://debian.qcow2
    """

    def work():
        desired.only_known(kwargs, image_cached)
        folder = images_folder.configured(__salt__["config.get"]).folder
        download = sources.SaltFiles(__salt__, saltenv, files.Chunks(__opts__).read)
        return images.cached(str(name), folder, download, image_hash, __opts__["test"])

    return desired.answer(name, __opts__["test"], work)
