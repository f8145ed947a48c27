"""
Metrics of a hypervisor and its guests, for Prometheus: docs/how-to/metrics.md.

:depends: libvirt-python and prometheus_client in Salt's own Python
"""

import threading
from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt.metrics.exporter import source
    from saltvirt.metrics.host import serve
    from saltvirt.pki.host import validity

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS


def __virtual__():
    return __virtualname__


def metrics(path=None):
    """
    Return the metrics that the engine ``virt_exporter`` of this hypervisor would serve now, for a
    text file collector such as that of Prometheus' node exporter.

    If libvirt does not answer, ``saltvirt_libvirt_up`` is 0; this is no error.

    :param path: file to write, atomically; its name must end with ``.prom``

    :return: text in Prometheus' format, or the path

    :raises InvalidInput: the path is invalid
    :raises Unsupported: ``prometheus_client`` is missing; the message says how to install it
    :raises OperationFailed: the file cannot be written

    CLI Example:

    .. code-block:: bash

        salt 'hyper*' virt.metrics path=/var/lib/prometheus/node-exporter/salt-virt.prom
    """
    name = __opts__["id"]
    host = serve.HostMetrics(
        __salt__["config.get"], name, lambda: validity.local_certificates(name), threading.Event()
    )
    return source.export_once({"host": name}, host.now, host.readers(0), path)
