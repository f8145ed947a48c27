"""
Manage the guests of a hypervisor.

:depends: libvirt-python in Salt's own Python; qemu-img to make and inspect disks

Every function accepts ``connection``, ``username`` and ``password``, which override the
configuration for one call:

.. code-block:: yaml

    virt:
      connection:
        uri: qemu:///system
        auth:
          username: user
          password: secret

Errors are one line: libvirt's message, the guest and the host.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import settings, units
    from saltvirt.host import connection, hooks
    from saltvirt.host.domain import (
        creation,
        describe,
        guest_lock,
        lifecycle,
        lookup,
        overview,
        stats,
        vcpus_memory,
    )
    from saltvirt.host.domain import (
        pending_changes as waiting,
    )
    from saltvirt.host.domain import power as host_power  # a function here has the same name
    from saltvirt.host.provision import admission
    from saltvirt.host.provision import start as host_start  # a function here has the same name
    from saltvirt.spec import values

if TYPE_CHECKING:
    from salt_dunders import __salt__

__virtualname__ = "virt"
__outputter__ = saltvirt.OUTPUTTERS

# function to the words in "cannot … web1"
_DESCRIPTIONS = {
    "setmem": "change the memory of",
    "setvcpus": "change the CPUs of",
    "set_autostart": "set the autostart of",
}


def __virtual__():
    return __virtualname__


def _connect(kwargs):
    return connection.connect(settings.connection(__salt__["config.get"], kwargs))


def _on(name, act, kwargs, *args):
    """Call ``act`` with the domain, and return its result."""
    with _connect(kwargs) as conn:
        return act(lookup.lookup(conn, name), *args)


def _change(name, operation, act, kwargs, *args):
    """Call ``act`` with the domain while the guest is locked, and return its result."""
    with _locked(operation, name):
        return _on(name, act, kwargs, *args)


def _locked(operation, *names):
    return guest_lock.acquire(
        guest_lock.folder(__salt__["config.get"]), f"virt.{operation}", *names
    )


def _complete(name, operation, act, kwargs, *args):
    """As _change, for a guest whose creation is complete."""

    def checked(dom, *args):
        creation.require_complete(dom, _DESCRIPTIONS.get(operation, operation))
        return act(dom, *args)

    return _change(name, operation, checked, kwargs, *args)


def _admitted(name, operation, act, kwargs, *args):
    """As _complete, while the host's admission is locked: ``act(domain, config, …)``."""
    admission_config = admission.config_of(__salt__["config.get"], kwargs)
    with _locked(operation, name), _connect(kwargs) as conn, admission_config.lock():
        dom = lookup.lookup(conn, name)
        creation.require_complete(dom, _DESCRIPTIONS.get(operation, operation))
        return act(dom, admission_config, *args)


def _refuse_incomplete(conn, xml, operation):
    """Refuse a definition that would replace a guest whose creation is not complete."""
    for name in lookup.names_in(xml):
        dom = lookup.find(conn, name)
        if dom:
            creation.require_complete(dom, operation)


def _tree(name, kwargs):
    with _connect(kwargs) as conn:
        return stats.tree(lookup.lookup(conn, name))


def list_domains(**kwargs):
    """
    List the names of all domains of this host.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: sorted list of names; empty if there are no domains


    CLI Example:

    .. code-block:: bash

        salt '*' virt.list_domains
    """
    with _connect(kwargs) as conn:
        return lookup.names(conn)


def list_active_vms(**kwargs):
    """
    List the names of the running and paused domains.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: sorted list of names


    CLI Example:

    .. code-block:: bash

        salt '*' virt.list_active_vms
    """
    with _connect(kwargs) as conn:
        return lookup.names(conn, lookup.ACTIVE)


def list_inactive_vms(**kwargs):
    """
    List the names of the domains that are shut off.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: sorted list of names


    CLI Example:

    .. code-block:: bash

        salt '*' virt.list_inactive_vms
    """
    with _connect(kwargs) as conn:
        return lookup.names(conn, lookup.INACTIVE)


def vm_info(vm_=None, **kwargs):
    """
    Show the size, state, disks, interfaces and display of domains.

    All domains are read in one pass, without opening their disks. If a domain is named, its disks
    are also inspected: image snapshots and the complete backing chain are shown.

    :param vm_: name of a domain; default: all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of domain names to::

        {
            "cpu": <vCPUs>,
            "maxMem": <KiB>,
            "mem": <KiB now>,
            "state": "running" | "paused" | "shutdown" | "crashed" | "pmsuspended",
            "cputime": <ns since it started>,
            "graphics": {"type": "vnc", "port": "5900", "listen": …},
            "nics": {<mac>: {"type", "source", "model", "target", …}},
            "disks": {<target>: {"file", "type", "file format", "virtual size" and
                      "disk size" in bytes, "backing file", "snapshots"}},
            "uuid", "loader", "on_crash", "on_reboot", "on_poweroff",
            "pending": [<change that takes effect at the next start>, …],
            "addresses": [<IP address that a DHCP server of libvirt or the host's ARP table
                           knows; the guest agent is not asked>, …],
            "autostart": <whether it starts with the host>
        }

        A domain or disk that cannot be read has an ``error`` instead; all others are complete.

    :raises NotFound: the domain does not exist


    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_info
    """
    with _connect(kwargs) as conn:
        return overview.vm_info(conn, vm_)


def pending_changes(vm_=None, **kwargs):
    """
    List changes of running domains that take effect at their next start.

    The running definition is compared with the stored one. A domain that is off has no pending
    changes.

    :param vm_: name of a domain; default: all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of domain names to lists of texts, such as
        ``memory (512 MiB now, then 1 GiB)`` or ``disk vdb (none now, then /srv/web1_data.qcow2)``

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.pending_changes
    """
    with _connect(kwargs) as conn:
        return waiting.for_domains(conn, vm_)


def vm_state(vm_=None, **kwargs):
    """
    Show the state of one domain or of all domains.

    :param vm_: name of a domain; default: all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of domain names to ``running``, ``paused``, ``shutdown``, ``crashed`` or
        ``pmsuspended``

    :raises NotFound: the domain does not exist


    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_state <domain>
    """
    with _connect(kwargs) as conn:
        return overview.vm_state(conn, vm_)


def get_nics(vm_, **kwargs):
    """
    List the network interfaces of a domain.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of MAC addresses to ``type``, ``source``, ``model``, ``target``,
        ``address`` and others

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_nics <domain>
    """
    return describe.nics(_tree(vm_, kwargs))


def get_macs(vm_, **kwargs):
    """
    List the MAC addresses of a domain, in the order of its interfaces.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: list of addresses

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_macs <domain>
    """
    return describe.macs(_tree(vm_, kwargs))


def get_graphics(vm_, **kwargs):
    """
    Show the display of a domain, without its password.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary with at least ``type``, ``port``, ``listen``, ``autoport`` and ``keymap``;
        unset values are the text ``None``

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_graphics <domain>
    """
    return describe.graphics(_tree(vm_, kwargs))


def get_loader(vm_, **kwargs):
    """
    Show the firmware of a domain.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary with ``path`` (the text ``None`` if there is none) and the loader's
        attributes

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_loader <domain>
    """
    return describe.loader(_tree(vm_, kwargs))


def get_disks(vm_, **kwargs):
    """
    List the disks of a domain, with their backing chains and image snapshots.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of targets (``vda``) to ``file``, ``type``, ``file format``,
        ``virtual size`` and ``disk size`` in bytes, ``backing file``, ``snapshots``; or ``error``

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_disks <domain>
    """
    with _connect(kwargs) as conn:
        return overview.disks(conn, vm_)


def setmem(vm_, memory, config=False, **kwargs):
    """
    Change the memory of a domain.

    For a stopped domain, both its maximum and its current memory are set. The memory of a running
    domain changes immediately through its balloon, up to the maximum that it was started with.

    :param vm_: name of the domain
    :param memory: MiB, or a size such as ``2GiB``
    :param config: also change the memory from a running domain's next start on; it may then exceed
        the current maximum
    :param overcommit: do it even if the host does not have enough free memory or CPUs; default:
        ``virt:overcommit``, else False
    :param placement: the master's policy, sent by the runner; default: ``virt:placement`` of this
        host
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises Unsupported: more than the running domain can get without ``config``
    :raises NoRoom: the host does not have enough free capacity


    CLI Example:

    .. code-block:: bash

        salt '*' virt.setmem <domain> 768
    """
    kib, config = units.parse_kib(memory), values.flag(config, "config")
    return _admitted(vm_, "setmem", vcpus_memory.set_memory, kwargs, kib, config)


def setvcpus(vm_, vcpus, config=False, **kwargs):
    """
    Change the number of virtual CPUs of a domain.

    For a stopped domain, both the maximum and the current number are set. The number of a running
    domain changes immediately by hotplug, up to the maximum that it was started with.

    :param vm_: name of the domain
    :param vcpus: number of virtual CPUs
    :param config: also change the number from a running domain's next start on; it may then exceed
        the current maximum
    :param overcommit: do it even if the host does not have enough free memory or CPUs; default:
        ``virt:overcommit``, else False
    :param placement: the master's policy, sent by the runner; default: ``virt:placement`` of this
        host
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises Unsupported: more than the running domain can get without ``config``
    :raises NoRoom: the host does not have enough free capacity

    CLI Example:

    .. code-block:: bash

        salt '*' virt.setvcpus <domain> 4
    """
    count, config = units.parse_count(vcpus, "vcpus"), values.flag(config, "config")
    return _admitted(vm_, "setvcpus", vcpus_memory.set_vcpus, kwargs, count, config)


def full_info(**kwargs):
    """
    Show the host and all its domains.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary: ``node_info``, ``freecpu``, ``freemem`` (MiB) and ``vm_info``


    CLI Example:

    .. code-block:: bash

        salt '*' virt.full_info
    """
    with _connect(kwargs) as conn:
        return overview.full_info(conn)


def get_xml(vm_, **kwargs):
    """
    Return a domain's current XML, without passwords.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the XML text

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_xml <domain>
    """
    return _on(vm_, lambda dom: dom.XMLDesc(0), kwargs)


def shutdown(vm_, timeout=0, **kwargs):
    """
    Ask the operating system of a guest to shut down.

    :param vm_: name of the domain
    :param timeout: seconds to wait until the guest is off; 0: only send the request
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True if the request was sent; with ``timeout``, if the guest is off

    :raises OperationFailed: libvirt refused, or the guest is still running after ``timeout``


    CLI Example:

    .. code-block:: bash

        salt '*' virt.shutdown <domain>
        salt '*' virt.shutdown <domain> timeout=60
    """
    timeout_s = values.number()(timeout, "timeout")
    with _locked("shutdown", vm_):
        pass  # the lock is released, so that the guest can be powered off meanwhile
    return _on(vm_, lifecycle.shutdown, kwargs, timeout_s)


def pause(vm_, **kwargs):
    """
    Pause a guest: its CPUs are stopped, its memory is kept.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed the state

    :raises OperationFailed: libvirt refused; the message contains its error


    CLI Example:

    .. code-block:: bash

        salt '*' virt.pause <domain>
    """
    return _change(vm_, "pause", lifecycle.pause, kwargs)


def resume(vm_, **kwargs):
    """
    Resume a paused or suspended guest.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed the state

    :raises OperationFailed: libvirt refused, or a migration of the guest was interrupted and it may
        run on the other host: call ``virt.migrate_recover`` first

    CLI Example:

    .. code-block:: bash

        salt '*' virt.resume <domain>
    """
    return _change(vm_, "resume", host_power.resume, kwargs)


def start(name, test=False, **kwargs):
    """
    Start a defined domain.

    Refused if the running guests would exceed the limits of ``virt:placement`` for memory or vCPUs.
    Salt 3007 did not check.

    :param name: name of the domain
    :param test: only check whether this host admits the guest; change nothing
    :param overcommit: do it even if the host does not have enough free memory or CPUs; default:
        ``virt:overcommit``, else False
    :param placement: the master's policy, sent by the runner; default: ``virt:placement`` of this
        host
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed the state

    :raises NoRoom: the host does not have enough free memory or CPUs
    :raises Refused: the disk of another guest is based on a disk of this guest, and would be
        corrupted
    :raises OperationFailed: libvirt refused, or a migration of the guest was interrupted and it may
        be on the other host: call ``virt.migrate_recover`` first


    CLI Example:

    .. code-block:: bash

        salt '*' virt.start <domain>
    """
    return _admitted(name, "start", host_start.start, kwargs, values.flag(test, "test"))


def stop(name, **kwargs):
    """
    Power off a guest. Data that it has not written is lost.

    :param name: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed the state

    :raises OperationFailed: libvirt refused; the message contains its error


    CLI Example:

    .. code-block:: bash

        salt '*' virt.stop <domain>
    """
    return _change(name, "stop", lifecycle.stop, kwargs)


def reboot(name, **kwargs):
    """
    Ask the operating system of a guest to reboot.

    :param name: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True if the request was sent

    :raises OperationFailed: libvirt refused; the message contains its error


    CLI Example:

    .. code-block:: bash

        salt '*' virt.reboot <domain>
    """
    return _change(name, "reboot", lifecycle.reboot, kwargs)


def reset(vm_, **kwargs):
    """
    Reset a guest, like its reset button.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed the state

    :raises OperationFailed: libvirt refused; the message contains its error


    CLI Example:

    .. code-block:: bash

        salt '*' virt.reset <domain>
    """
    return _change(vm_, "reset", lifecycle.reset, kwargs)


def ctrl_alt_del(vm_, **kwargs):
    """
    Send the keys Ctrl, Alt and Del to a guest.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True if they were sent

    :raises OperationFailed: libvirt refused; the message contains its error


    CLI Example:

    .. code-block:: bash

        salt '*' virt.ctrl_alt_del <domain>
    """
    return _on(vm_, lifecycle.ctrl_alt_del, kwargs)


def set_autostart(vm_, state="on", **kwargs):
    """
    Set whether a guest starts with the host.

    :param vm_: name of the domain
    :param state: ``on`` or ``off``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed the flag

    :raises InvalidInput: invalid state
    :raises Refused: high availability manages the guest, so it must not start with its host

    CLI Example:

    .. code-block:: bash

        salt "*" virt.set_autostart <domain> <on | off>
    """
    on = lifecycle.on_off(state)
    for feature in hooks.installed() if on else ():
        feature.check_autostart(str(vm_))
    change = _complete if on else _change
    return change(vm_, "set_autostart", lifecycle.set_autostart, kwargs, on)


def create_xml_str(xml, **kwargs):
    """
    Start a transient domain from its XML. It disappears when it stops.

    :param xml: the domain's XML text
    :param overcommit: do it even if the host does not have enough free memory or CPUs; default:
        ``virt:overcommit``, else False
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed that it is active


    CLI Example:

    .. code-block:: bash

        salt '*' virt.create_xml_str <XML in string format>
    """
    admission_config = admission.config_of(__salt__["config.get"], kwargs)
    locked = _locked("create_xml_str", *lookup.names_in(xml))
    with locked, _connect(kwargs) as conn, admission_config.lock():
        _refuse_incomplete(conn, xml, "start")
        admission.check_transient(conn, admission_config, xml)
        lookup.create(conn, xml)
    return True


def create_xml_path(path, **kwargs):
    """
    Start a transient domain from an XML file. It disappears when it stops.

    :param path: path of the file on the hypervisor
    :param overcommit: do it even if the host does not have enough free memory or CPUs; default:
        ``virt:overcommit``, else False
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt has confirmed that it is active

    :raises InvalidInput: the file cannot be read


    CLI Example:

    .. code-block:: bash

        salt '*' virt.create_xml_path <path to XML file on the node>
    """
    return create_xml_str(lookup.from_file(path), **kwargs)


def define_xml_str(xml, **kwargs):
    """
    Define a persistent domain from its XML; it is not started.

    :param xml: the domain's XML text
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True


    CLI Example:

    .. code-block:: bash

        salt '*' virt.define_xml_str <XML in string format>
    """
    with _locked("define_xml_str", *lookup.names_in(xml)), _connect(kwargs) as conn:
        _refuse_incomplete(conn, xml, "define")
        lookup.define(conn, xml)
    return True


def define_xml_path(path, **kwargs):
    """
    Define a persistent domain from an XML file; it is not started.

    :param path: path of the file on the hypervisor
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises InvalidInput: the file cannot be read


    CLI Example:

    .. code-block:: bash

        salt '*' virt.define_xml_path <path to XML file on the node>
    """
    return define_xml_str(lookup.from_file(path), **kwargs)


def vm_cputime(vm_=None, **kwargs):
    """
    Show the CPU time of domains.

    The percentage is measured over half a second; 100 means that all vCPUs of the guest are busy.

    :param vm_: name of a domain; default: all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of domain names to ``cputime`` (ns) and ``cputime_percent`` (0 to 100)

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_cputime
    """
    with _connect(kwargs) as conn:
        return overview.vm_cputime(conn, vm_)


def vm_netstats(vm_=None, **kwargs):
    """
    Show the network counters of domains, summed over the interfaces of each.

    :param vm_: name of a domain; default: all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of domain names to ``rx_bytes``, ``rx_packets``, ``rx_errs``, ``rx_drop``
        and the same with ``tx_``

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_netstats
    """
    with _connect(kwargs) as conn:
        return overview.vm_netstats(conn, vm_)


def vm_diskstats(vm_=None, **kwargs):
    """
    Show the disk counters of active domains, summed over the disks of each.

    :param vm_: name of a domain; default: all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dictionary of domain names to ``rd_req``, ``rd_bytes``, ``wr_req``, ``wr_bytes`` and
        ``errs``

    :raises NotFound: the domain does not exist

    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_diskstats
    """
    with _connect(kwargs) as conn:
        return overview.vm_diskstats(conn, vm_)
