"""
Engine that records events of libvirt for ``salt-run virt.log``: guests that crash, shut down or
reboot by themselves, that are started or stopped with virsh, or that pause because of an I/O error
or a watchdog; hosts whose libvirt or whose minion does not respond. See docs/how-to/runner.md.

Configuration of a master and of each hypervisor:

.. code-block:: yaml

    engines:
      - virt_log

With options, on a hypervisor:

.. code-block:: yaml

    engines:
      - virt_log:
          uri: qemu:///system   # default: virt:connection:uri, else libvirt's own default
          interval: 60          # seconds: the master also hears from a host without events

On a hypervisor, the engine listens to libvirt, and signs what it reports with the key of the
minion. On the master, it verifies the reports and stores them, for each host within limits of its
own.

:depends: on a hypervisor: libvirt-python in Salt's own Python
"""

import logging
import threading
import time
from typing import TYPE_CHECKING

import salt.utils.event

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import errors, units
from saltvirt.answers import host_events

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

log = logging.getLogger(__name__)

__virtualname__ = "virt_log"

# Salt restarts an engine immediately when it exits
_PAUSE_S = 10


def __virtual__():
    return __virtualname__


def start(uri=None, interval=60):
    """
    Report or record events until the engine is stopped.

    :param uri: on a hypervisor: libvirt URI; default: ``virt:connection:uri``
    :param interval: on a hypervisor: seconds after which it also reports without an event, 1 to 600
    """
    try:
        if __opts__.get("__role") == "master":
            _record()
        else:
            interval_s = units.parse_number(interval, "interval", 600)
            _report(uri or __salt__["config.get"]("virt:connection:uri", None), max(1, interval_s))
    except errors.VirtError as exc:
        log.error("%s", exc.text)
        time.sleep(_PAUSE_S)


def _report(uri, interval_s):
    """Report the events of this host's libvirt."""
    from saltvirt.fleet.minion import event_reports  # noqa: PLC0415 - a master has no libvirt
    from saltvirt.host.node import event_connection, events  # noqa: PLC0415

    opts = dict(__opts__)
    reporter = event_reports.EventReporter(opts, interval_s)

    def send(_uri, _kind, event, data):
        described = host_events.from_libvirt(event, data)
        if described is not None:
            reporter.add(data["domain"]["name"], *described)

    def connected(is_connected):
        reporter.add(None, "listening" if is_connected else "libvirt_lost")

    pairs = events.parse_filters([*host_events.FILTERS])
    listener = event_connection.LibvirtListener(uri, pairs, send, connected)
    with event_reports.only_reporter(opts):
        threading.Thread(target=reporter.run, name="virt_log", daemon=True).start()
        try:
            listener.run()
        finally:
            reporter.stop()


def _record():
    """Record the reports of the hosts."""
    from saltvirt.operations.cluster import event_receiver  # noqa: PLC0415 - masters only

    receiver = event_receiver.EventReceiver(dict(__opts__))
    with salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=True) as bus:
        while True:
            event = bus.get_event(
                wait=event_receiver.CHECK_S, tag=host_events.TAG, full=True, auto_reconnect=True
            )
            if event:
                receiver.receive(event["tag"], event["data"])
            receiver.check_silence()
