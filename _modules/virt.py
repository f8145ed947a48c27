"""
Guests of a hypervisor: what they are, their life, and how they are made and removed.

:depends: libvirt-python in Salt's own Python; qemu-img to make and inspect disks

Every function takes ``connection``, ``username`` and ``password``, which override the
configuration for one call:

.. code-block:: yaml

    virt:
      connection:
        uri: qemu:///system
        auth:
          username: user
          password: secret

A failure is raised as one line: libvirt's own words, and which guest on which host.
"""

from typing import TYPE_CHECKING

import saltvirt

saltvirt = saltvirt.fresh()

with saltvirt.later():
    from saltvirt import errors, settings, units
    from saltvirt.answers import power as power_answer
    from saltvirt.ha.agent import managed_guests
    from saltvirt.host import connection
    from saltvirt.host.domain import (
        creation,
        describe,
        guest_lock,
        lifecycle,
        live_restores,
        lookup,
        overview,
        stats,
        vcpus_memory,
    )
    from saltvirt.host.domain import (
        pending_changes as waiting,
    )
    from saltvirt.host.domain import power as powering  # the name is a function's here
    from saltvirt.host.migration import move_journal
    from saltvirt.host.node import job_steps
    from saltvirt.host.provision import admission
    from saltvirt.host.storage import overlays
    from saltvirt.spec import values

if TYPE_CHECKING:
    from collections.abc import Callable

    from salt_dunders import __salt__

__virtualname__ = "virt"

# functions as "cannot … web1" has them
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
    """What ``act`` returns for the named domain."""
    with _connect(kwargs) as conn:
        return act(lookup.lookup(conn, name), *args)


def _change(name, operation, act, kwargs, *args):
    """What ``act`` returns for the named domain, which no other operation changes meanwhile."""
    with _locked(operation, name):
        return _on(name, act, kwargs, *args)


def _locked(operation, *names):
    return guest_lock.acquire(
        guest_lock.folder(__salt__["config.get"]), f"virt.{operation}", *names
    )


def _complete(name, operation, act, kwargs, *args):
    """As _change, of a guest whose creation has ended."""

    def checked(dom, *args):
        creation.require_complete(dom, _DESCRIPTIONS.get(operation, operation))
        return act(dom, *args)

    return _change(name, operation, checked, kwargs, *args)


def _admitted(name, operation, act, kwargs, *args):
    """The same with the host's admission, whose lock is held: ``act(domain, config, …)``."""
    admission_config = admission.config_of(__salt__["config.get"], kwargs)
    with _locked(operation, name), _connect(kwargs) as conn, admission_config.lock():
        dom = lookup.lookup(conn, name)
        creation.require_complete(dom, _DESCRIPTIONS.get(operation, operation))
        return act(dom, admission_config, *args)


def _refuse_incomplete(conn, xml, operation):
    """Of a definition that would take the place of a guest whose creation has not ended."""
    for name in lookup.names_in(xml):
        dom = lookup.find(conn, name)
        if dom:
            creation.require_complete(dom, operation)


def _tree(name, kwargs):
    with _connect(kwargs) as conn:
        return stats.tree(lookup.lookup(conn, name))


def list_domains(**kwargs):
    """
    The names of all domains of this host.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: sorted list of names; empty without domains


    CLI Example:

    .. code-block:: bash

        salt '*' virt.list_domains
    """
    with _connect(kwargs) as conn:
        return lookup.names(conn)


def list_active_vms(**kwargs):
    """
    The names of the running and paused domains.

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
    The names of the domains that are shut off.

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
    What the domains are: size, state, disks, interfaces, display.

    All domains are read at once and no disk is opened for them. For one named domain the
    disks are also inspected: image snapshots and the whole backing chain are shown.

    :param vm_: name of one domain; without it, all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of the domain's name to::

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
            "pending": [<what a running guest gets only at its next start>, …]
        }

        A domain or disk that cannot be read has an ``error`` instead, the rest is there.

    :raises NotFound: there is no such domain


    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_info
    """
    with _connect(kwargs) as conn:
        return overview.vm_info(conn, vm_)


def pending_changes(vm_=None, **kwargs):
    """
    What running domains lack of their definitions: their next start brings it.

    The running definition is compared with the stored one. A domain that is off has nothing to
    wait for.

    :param vm_: name of one domain; without it, all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of the domain's name to a list of texts, such as ``memory (512 MiB now, then
        1 GiB)`` or ``disk vdb (none now, then /srv/web1_data.qcow2)``

    :raises NotFound: there is no such domain

    CLI Example:

    .. code-block:: bash

        salt '*' virt.pending_changes
    """
    with _connect(kwargs) as conn:
        return waiting.for_domains(conn, vm_)


def vm_state(vm_=None, **kwargs):
    """
    The state of one or all domains.

    :param vm_: name of one domain; without it, all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of the domain's name to ``running``, ``paused``, ``shutdown``, ``crashed`` or
        ``pmsuspended``

    :raises NotFound: there is no such domain


    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_state <domain>
    """
    with _connect(kwargs) as conn:
        return overview.vm_state(conn, vm_)


def get_nics(vm_, **kwargs):
    """
    The network interfaces of a domain.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of MAC address to ``type``, ``source``, ``model``, ``target``, ``address``…


    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_nics <domain>
    """
    return describe.nics(_tree(vm_, kwargs))


def get_macs(vm_, **kwargs):
    """
    The MAC addresses of a domain, in the order of its interfaces.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: list of addresses


    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_macs <domain>
    """
    return describe.macs(_tree(vm_, kwargs))


def get_graphics(vm_, **kwargs):
    """
    The display of a domain. Its password is never shown.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict with at least ``type``, ``port``, ``listen``, ``autoport`` and ``keymap``;
        what is not set is the word ``None``


    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_graphics <domain>
    """
    return describe.graphics(_tree(vm_, kwargs))


def get_loader(vm_, **kwargs):
    """
    The firmware of a domain.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict with ``path`` (the word ``None`` without one) and the loader's attributes


    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_loader <domain>
    """
    return describe.loader(_tree(vm_, kwargs))


def get_disks(vm_, **kwargs):
    """
    The disks of a domain, with their backing chain and image snapshots.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of the target (``vda``) to ``file``, ``type``, ``file format``, ``virtual size``
        and ``disk size`` in bytes, ``backing file``, ``snapshots``; or ``error``


    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_disks <domain>
    """
    with _connect(kwargs) as conn:
        return overview.disks(conn, vm_)


def setmem(vm_, memory, config=False, **kwargs):
    """
    Change how much memory a domain has.

    A stopped domain gets it as its maximum and current memory. A running one gets it at
    once by its balloon, up to the maximum it was started with.

    :param vm_: name of the domain
    :param memory: MiB, or a size such as ``2GiB``
    :param config: of a running domain, also change what it has from its next start on;
        then it may be more than its present maximum
    :param overcommit: do it also where the host has promised its memory or CPUs to others;
        default: ``virt:overcommit``, else False
    :param placement: what the runner sends: the master's policy; default: ``virt:placement`` here
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises Unsupported: more than the running domain can take without ``config``
    :raises NoRoom: the host has promised to others what it would get more


    CLI Example:

    .. code-block:: bash

        salt '*' virt.setmem <domain> 768
    """
    return _admitted(
        vm_,
        "setmem",
        vcpus_memory.set_memory,
        kwargs,
        units.parse_kib(memory),
        values.flag(config, "config"),
    )


def setvcpus(vm_, vcpus, config=False, **kwargs):
    """
    Change how many virtual CPUs a domain has.

    A stopped domain gets them as its maximum and current number. A running one gets them
    at once by hotplug, up to the maximum it was started with.

    :param vm_: name of the domain
    :param vcpus: how many
    :param config: of a running domain, also change what it has from its next start on;
        then it may be more than its present maximum
    :param overcommit: do it also where the host has promised its memory or CPUs to others;
        default: ``virt:overcommit``, else False
    :param placement: what the runner sends: the master's policy; default: ``virt:placement`` here
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True

    :raises Unsupported: more than the running domain can take without ``config``
    :raises NoRoom: the host has promised to others what it would get more


    CLI Example:

    .. code-block:: bash

        salt '*' virt.setvcpus <domain> 4
    """
    return _admitted(
        vm_,
        "setvcpus",
        vcpus_memory.set_vcpus,
        kwargs,
        units.parse_count(vcpus, "vcpus"),
        values.flag(config, "config"),
    )


def full_info(**kwargs):
    """
    The host and all its domains, in one answer.

    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``node_info``, ``freecpu``, ``freemem`` (MiB) and ``vm_info``


    CLI Example:

    .. code-block:: bash

        salt '*' virt.full_info
    """
    with _connect(kwargs) as conn:
        return overview.full_info(conn)


def get_xml(vm_, **kwargs):
    """
    A domain's XML as libvirt has it now, without passwords.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: the XML text


    CLI Example:

    .. code-block:: bash

        salt '*' virt.get_xml <domain>
    """
    return _on(vm_, lambda dom: dom.XMLDesc(0), kwargs)


def shutdown(vm_, timeout=0, **kwargs):
    """
    Ask the system in a guest to power down.

    :param vm_: name of the domain
    :param timeout: seconds to wait until it is off; 0 only delivers the request
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True when the request was delivered, with ``timeout`` when the guest is off

    :raises OperationFailed: libvirt refused, with its words; or it runs after ``timeout``


    CLI Example:

    .. code-block:: bash

        salt '*' virt.shutdown <domain>
        salt '*' virt.shutdown <domain> timeout=60
    """
    timeout_s = values.number()(timeout, "timeout")
    with _locked("shutdown", vm_):
        pass  # held no longer: who does not want to wait for the guest's system may pull the power
    return _on(vm_, lifecycle.shutdown, kwargs, timeout_s)


def pause(vm_, **kwargs):
    """
    Freeze a guest: its CPUs are stopped, its memory stays.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt showed it paused

    :raises OperationFailed: libvirt refused; the message has its words


    CLI Example:

    .. code-block:: bash

        salt '*' virt.pause <domain>
    """
    return _change(vm_, "pause", lifecycle.pause, kwargs)


def resume(vm_, **kwargs):
    """
    Let a paused or sleeping guest run on.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt showed it running

    :raises OperationFailed: libvirt refused; the message has its words. Or a migration of it was
        broken off, and it may run on the other host: ``virt.migrate_recover`` comes first

    CLI Example:

    .. code-block:: bash

        salt '*' virt.resume <domain>
    """
    return _change(vm_, "resume", powering.resume, kwargs)


def start(name, test=False, **kwargs):
    """
    Start a defined domain.

    Refused where the guests that run would then have more memory or vCPUs than placement allows
    (``virt:placement``); with Salt 3007 it was started.

    :param name: name of the domain
    :param test: only see whether this host admits it; change nothing
    :param overcommit: do it also where the host has promised its memory or CPUs to others;
        default: ``virt:overcommit``, else False
    :param placement: what the runner sends: the master's policy; default: ``virt:placement`` here
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt showed it running

    :raises NoRoom: the host's memory or CPUs are promised to others
    :raises Refused: the guest writes to a disk on which the disk of another guest is based: each
        write would damage that one
    :raises OperationFailed: libvirt refused; the message has its words. Or a migration of it was
        broken off, and it may be on the other host: ``virt.migrate_recover`` comes first


    CLI Example:

    .. code-block:: bash

        salt '*' virt.start <domain>
    """
    return _admitted(name, "start", _started, kwargs, values.flag(test, "test"))


def _started(dom, admission_config, test):
    move_journal.require_startable(dom)
    live_restores.may_start(dom.name())
    overlays.refuse_start(dom.connect(), dom)
    admission.check_start(dom.connect(), admission_config, dom)
    return True if test else lifecycle.start(dom)


def stop(name, **kwargs):
    """
    Pull the power of a guest. What it had not written is lost.

    :param name: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt showed it off

    :raises OperationFailed: libvirt refused; the message has its words


    CLI Example:

    .. code-block:: bash

        salt '*' virt.stop <domain>
    """
    return _change(name, "stop", lifecycle.stop, kwargs)


def reboot(name, **kwargs):
    """
    Ask the system in a guest to reboot.

    :param name: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True when the request was delivered

    :raises OperationFailed: libvirt refused; the message has its words


    CLI Example:

    .. code-block:: bash

        salt '*' virt.reboot <domain>
    """
    return _change(name, "reboot", lifecycle.reboot, kwargs)


def reset(vm_, **kwargs):
    """
    Press the reset button of a guest.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt showed it running

    :raises OperationFailed: libvirt refused; the message has its words


    CLI Example:

    .. code-block:: bash

        salt '*' virt.reset <domain>
    """
    return _change(vm_, "reset", lifecycle.reset, kwargs)


def power(name, verb, when, last_seen=False, timeout=0, overcommit=None, placement=None, **kwargs):
    """
    Start, stop, pause, resume or reset a guest that is in one of the given states, and say what
    became of it. ``salt-run virt.…`` calls it for its verbs by name: one job has all of it.

    :param name: of the guest
    :param verb: ``start``, ``shutdown``, ``stop``, ``pause``, ``resume`` or ``reset``
    :param when: list of the states that it is done in; in any other nothing is done
    :param last_seen: no other host was asked: nothing is done either with one that is off here, or
        is being moved, or of which a migration was broken off, for it may be on another host
    :param timeout: of ``shutdown``: how many seconds the guest's system may take; it is asked again
        every 10 s, and after that time left on
    :param overcommit: as for ``virt.start``
    :param placement: as for ``virt.start``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict: ``before``, the state's word, or None without a guest that surely is the one;
        ``after``, its state when it was done, or None

    :raises OperationFailed: libvirt refused; the message has its words

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.power web1 stop when='[running, paused]'
    """
    verb = values.choice("start", "shutdown", "stop", "pause", "resume", "reset")(verb, "verb")
    when = values.list_of(values.word)(when, "when")
    timeout_s = units.parse_number(timeout, "timeout")
    admitted = {"overcommit": overcommit, "placement": placement}
    acts: dict[str, Callable[[], object]] = {
        "start": lambda: start(name, **admitted, **kwargs),
        "stop": lambda: stop(name, **kwargs),
        "pause": lambda: pause(name, **kwargs),
        "resume": lambda: resume(name, **kwargs),
        "reset": lambda: reset(name, **kwargs),
    }
    with _locked(verb, name):
        with _connect(kwargs) as conn:
            before = powering.before(conn, name, last_seen)
        if before not in when:
            return power_answer.PowerChange(before).to_answer()
        if verb in acts:
            acts[verb]()
    if verb not in acts:  # the lock is not held: who does not want to wait may pull the power
        steps_dir = job_steps.folder(__salt__["config.get"])
        _on(name, lifecycle.off_within, kwargs, timeout_s, lambda: job_steps.record_step(steps_dir))
    with _connect(kwargs) as conn:
        return power_answer.PowerChange(before, powering.after(conn, name)).to_answer()


def ctrl_alt_del(vm_, **kwargs):
    """
    Send the keys Ctrl, Alt and Del to a guest.

    :param vm_: name of the domain
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True when they were delivered

    :raises OperationFailed: libvirt refused; the message has its words


    CLI Example:

    .. code-block:: bash

        salt '*' virt.ctrl_alt_del <domain>
    """
    return _on(vm_, lifecycle.ctrl_alt_del, kwargs)


def set_autostart(vm_, state="on", **kwargs):
    """
    Say whether a guest starts with the host.

    :param vm_: name of the domain
    :param state: ``on`` or ``off``
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt showed the flag

    :raises InvalidInput: another state
    :raises Refused: it is kept by high availability, and must not start with its host

    CLI Example:

    .. code-block:: bash

        salt "*" virt.set_autostart <domain> <on | off>
    """
    on = lifecycle.on_off(state)
    if on and (ha_reason := managed_guests.describe(str(vm_))):
        raise errors.Refused(
            f"{ha_reason}, which alone starts it: it cannot start with its host, too"
        )
    change = _complete if on else _change
    return change(vm_, "set_autostart", lifecycle.set_autostart, kwargs, on)


def create_xml_str(xml, **kwargs):
    """
    Start a transient domain from its XML: it is gone when it stops.

    :param xml: the domain's XML text
    :param overcommit: do it also where the host has promised its memory or CPUs to others;
        default: ``virt:overcommit``, else False
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt showed it active


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
    Start a transient domain from an XML file: it is gone when it stops.

    :param path: of the file, on the hypervisor
    :param overcommit: do it also where the host has promised its memory or CPUs to others;
        default: ``virt:overcommit``, else False
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: True, after libvirt showed it active

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

    :param path: of the file, on the hypervisor
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
    How much CPU time the domains used.

    The percentage is measured over half a second; 100 is all of a guest's vCPUs.

    :param vm_: name of one domain; without it, all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of the domain's name to ``cputime`` (ns) and ``cputime_percent`` (0 to 100)


    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_cputime
    """
    with _connect(kwargs) as conn:
        return overview.vm_cputime(conn, vm_)


def vm_netstats(vm_=None, **kwargs):
    """
    Network counters of the domains, all interfaces of one together.

    :param vm_: name of one domain; without it, all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of the domain's name to ``rx_bytes``, ``rx_packets``, ``rx_errs``, ``rx_drop``
        and the same with ``tx_``


    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_netstats
    """
    with _connect(kwargs) as conn:
        return overview.vm_netstats(conn, vm_)


def vm_diskstats(vm_=None, **kwargs):
    """
    Disk counters of the active domains, all disks of one together.

    :param vm_: name of one domain; without it, all domains
    :param kwargs: ``connection``, ``username`` and ``password`` override ``virt:connection``

    :return: a dict of the domain's name to ``rd_req``, ``rd_bytes``, ``wr_req``, ``wr_bytes`` and
        ``errs``


    CLI Example:

    .. code-block:: bash

        salt '*' virt.vm_diskstats
    """
    with _connect(kwargs) as conn:
        return overview.vm_diskstats(conn, vm_)
