"""
Engine that serves metrics to Prometheus: on a hypervisor, the metrics of the host and its guests;
on a master, the metrics of the cloud. See docs/how-to/metrics.md.

Configuration of a minion or of a master:

.. code-block:: yaml

    engines:
      - virt_exporter

With options:

.. code-block:: yaml

    engines:
      - virt_exporter:
          address: 10.0.0.11   # default: 127.0.0.1, which only this machine reaches
          port: 9177           # default: 9177, on a master 9178
          tls: true            # with the hypervisor's certificate; default: false
          every_s: 60          # seconds between two collections of capacity, images and
                               # certificates; default: 60, on a master 300

The engine runs in a process of its own and does not block the minion. There is no authentication:
everybody who can connect to the port can read the metrics.

:depends: prometheus_client in Salt's own Python; on a hypervisor libvirt-python, too
"""

import logging
import threading
import time
from typing import TYPE_CHECKING

import salt.loader

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import errors
from saltvirt.metrics.exporter import options, serve, text
from saltvirt.metrics.exporter.readers import PeriodicReader

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

log = logging.getLogger(__name__)

__virtualname__ = "virt_exporter"

_HOST_PORT, _MASTER_PORT = 9177, 9178
_HOST_S, _MASTER_S = 60, 300
# Salt restarts an engine immediately when it exits
_PAUSE_S = 10


def __virtual__():
    try:
        text.require_library()
    except errors.Unsupported as exc:
        return False, str(exc)
    return __virtualname__


def start(address="127.0.0.1", port=None, tls=False, every_s=None):
    """
    Serve metrics until the engine is stopped.

    :param address: IP address to listen on
    :param port: TCP port; default 9177, on a master 9178
    :param tls: True: use TLS with the hypervisor's own certificate
    :param every_s: interval in seconds for metrics that are expensive to collect; default 60, on a
        master 300
    """
    master = __opts__.get("__role") == "master"
    port = (_MASTER_PORT if master else _HOST_PORT) if port is None else port
    every_s = (_MASTER_S if master else _HOST_S) if every_s is None else every_s
    try:
        config = options.validate(address, port, tls, every_s)
        (_serve_master if master else _serve_host)(config)
    except errors.VirtError as exc:
        log.error("%s", exc.text)
        time.sleep(_PAUSE_S)


def _serve_host(config):
    from saltvirt.metrics.host.serve import HostMetrics  # noqa: PLC0415 - a master has no libvirt
    from saltvirt.pki.host import layout, validity  # noqa: PLC0415
    from saltvirt.system import tls_listener  # noqa: PLC0415

    get, stop = __salt__["config.get"], threading.Event()
    host = HostMetrics(
        get, __opts__["id"], lambda: validity.local_certificates(__opts__["id"]), stop
    )
    key, certificate = layout.by_use(layout.tls_files("/etc/pki"))["server"]
    files = tls_listener.CertificateFiles(str(certificate.path), str(key.path))
    pair = files if config.tls else None
    serve.run(config, {"host": host.name}, (host.now, host.readers(config.every_s)), stop, pair)


def _serve_master(config):
    from saltvirt.metrics.master import read  # noqa: PLC0415 - a hypervisor needs none of it

    if config.tls:
        raise errors.InvalidInput(
            "the engine virt_exporter: a master has no certificate for tls: listen on "
            "127.0.0.1, behind a proxy with TLS"
        )
    opts = dict(__opts__)
    reads = read.reads(opts, salt.loader.runner(opts))
    collectors = {
        part: PeriodicReader(reader, config.every_s, part) for part, reader in reads.items()
    }
    serve.run(config, {}, (lambda: iter(()), collectors), threading.Event())
