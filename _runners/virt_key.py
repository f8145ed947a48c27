"""Permissions for hypervisors to hand in the keys of guests they make by themselves."""

import saltvirt

saltvirt = saltvirt.fresh()
from saltvirt import errors  # noqa: E402
from saltvirt.fleet import authorise  # noqa: E402

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def authorize(name, host):
    """
    Let a hypervisor hand in the minion key of one guest, once, within ten minutes.

    ``salt-run virt.init`` needs no permission. It is for guests that are made on the
    hypervisor itself: ``salt hv1 virt.init web1 …``, ``salt hv1 seed.apply …``.

    :param name: the guest's minion id
    :param host: the hypervisor's minion id
    :return: ``{name: {"result": …, "comment": …}}``; the exit code is 1 for a name that
        no guest can have

    CLI Example:

    .. code-block:: bash

        salt-run virt.authorize web1 hv1
    """
    try:
        authorise.Authorisations(__opts__).grant(str(host), str(name))
    except errors.VirtError as exc:
        return {name: {"result": False, "comment": exc.text}, "retcode": 1}
    comment = f"{host} may hand in the key of {name} within {authorise.LIFETIME_S // 60} minutes"
    return {name: {"result": True, "comment": comment}}
