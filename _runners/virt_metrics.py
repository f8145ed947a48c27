"""
Metrics of the master for Prometheus: docs/how-to/metrics.md.

:depends: prometheus_client in Salt's own Python
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt.operations.access import runner

with saltvirt.later():
    from saltvirt.metrics.exporter import readers, source, text
    from saltvirt.metrics.master import read

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


@runner.reporting
def metrics(path=None):
    """
    Return the metrics that the engine ``virt_exporter`` of this master would serve now, for a text
    file collector such as that of Prometheus' node exporter. All hosts are queried.

    :param path: file to write, atomically; its name must end with ``.prom``

    :return: under ``metrics`` text in Prometheus' format, or the path

    CLI Example:

    .. code-block:: bash

        salt-run virt.metrics path=/var/lib/prometheus/node-exporter/salt-virt.prom
    """
    text.require_library()
    reads = read.reads(__opts__, __salt__)
    collectors = {part: readers.PeriodicReader(reader, 0, part) for part, reader in reads.items()}
    return {"metrics": source.export_once({}, lambda: iter(()), collectors, path)}
