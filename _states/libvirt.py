"""
Old name of the certificate state: ``libvirt.keys`` is an alias of ``virt.keys``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from salt_dunders import __states__

__virtualname__ = "libvirt"


def __virtual__():
    return __virtualname__


def keys(name, **kwargs):
    """
    Alias of ``virt.keys``, with the same parameters.

    CLI Example:

    .. code-block:: bash

        salt 'hv*' state.single libvirt.keys name=libvirt_keys
    """
    return __states__["virt.keys"](name, **kwargs)
