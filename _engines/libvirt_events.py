"""
Engine that forwards libvirt's events to Salt's event bus.

Configuration of a minion (whose events also reach the master's bus) or of a master:

.. code-block:: yaml

    engines:
      - libvirt_events

With options:

.. code-block:: yaml

    engines:
      - libvirt_events:
          uri: lxc:///
          tag_prefix: libvirt
          filters:
            - domain/lifecycle
            - domain/reboot
            - pool

The tag of an event is ``<tag_prefix>/<uri>/<object>/<event>``, for example
``salt/engines/libvirt_events/qemu/system/domain/lifecycle``. Its data contains ``uri``; the object
(``domain``: ``name``, ``id``, ``uuid``; ``network`` and ``pool``: ``name``, ``uuid``; ``nodedev``:
``name``; ``secret``: ``uuid``); ``event``; and the data of the event. For ``lifecycle`` that is the
change (``event``: ``started``, ``stopped`` and others) and the reason (``detail``: ``booted``,
``migrated`` and others).

The objects and their events:

- ``domain``: ``lifecycle``, ``reboot``, ``rtc_change``, ``watchdog``, ``graphics``,
  ``io_error``, ``control_error``, ``disk_change``, ``tray_change``, ``pmwakeup``,
  ``pmsuspend``, ``balloon_change``, ``pmsuspend_disk``, ``device_removed``, ``block_job``,
  ``tunable``, ``agent_lifecycle``, ``device_added``, ``migration_iteration``,
  ``job_completed``, ``device_removal_failed``, ``metadata_change``, ``block_threshold``
- ``network``: ``lifecycle``; ``pool``: ``lifecycle``, ``refresh``
- ``nodedev``: ``lifecycle``, ``update``; ``secret``: ``lifecycle``, ``value_changed``

Events that the installed libvirt does not support are ignored. If libvirt is restarted, the engine
reconnects.

A master that does not run as root needs a polkit rule that lets its user monitor libvirt
(action ``org.libvirt.unix.monitor``).

:depends: libvirt-python in Salt's own Python
"""

import urllib.parse
from typing import TYPE_CHECKING

import salt.utils.event

import saltvirt

saltvirt = saltvirt.fresh()

from saltvirt import errors
from saltvirt.host import connection
from saltvirt.host.node import event_connection, events

if TYPE_CHECKING:
    from salt_dunders import __opts__, __salt__

__virtualname__ = "libvirt_events"


def __virtual__():
    try:
        connection.require_binding()
    except errors.BindingMissing as exc:
        return False, str(exc)
    return __virtualname__


def start(uri=None, tag_prefix="salt/engines/libvirt_events", filters=None):
    """
    Listen to libvirt until the engine is stopped.

    :param uri: libvirt URI; None for libvirt's own default
    :param tag_prefix: prefix of the events' tags
    :param filters: list of objects (``domain``) and events (``domain/lifecycle``) to forward;
        default ``all``
    """
    for name, value in (("uri", uri), ("tag_prefix", tag_prefix)):
        if value is not None and not isinstance(value, str):
            raise errors.InvalidInput(f"{name} must be text, not {type(value).__name__}")
    pairs = events.parse_filters(filters or ["all"])
    fire = _fire()

    def send(uri_or_host, kind, event, data):
        fire(
            "/".join((tag_prefix, _in_tag(uri_or_host), kind, event)), {"uri": uri_or_host, **data}
        )

    event_connection.LibvirtListener(uri, pairs, send).run()


def _in_tag(uri):
    """``qemu+ssh://user@host:1/system`` as ``qemu+ssh/user@host:1/system``."""
    parts = urllib.parse.urlparse(uri)
    return "/".join(part for part in (parts.scheme, parts.netloc, parts.path.strip("/")) if part)


def _fire():
    """Return the function that sends an event, with tag and data, from a master or minion."""
    if __opts__.get("__role") != "master":
        return __salt__["event.send"]
    bus = salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=False)
    return lambda tag, data: bus.fire_event(data, tag)
