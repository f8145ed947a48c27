"""libvirt's test driver, whose host exists as long as a connection to it is open."""

import functools
import subprocess
import sys
from xml.etree import ElementTree

URI = "test:///default"
_DUMP = f"import libvirt; print(libvirt.open({URI!r}).lookupByName('test').XMLDesc(2))"


@functools.cache
def _test_at_first():
    """The definition of the driver's own guest, by a process that has changed nothing of it."""
    argv = [sys.executable, "-c", _DUMP]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def only_test(conn):
    """The driver's host lives on between tests where one of them left it open, or Salt's loader
    keeps the traceback of a function that it lacks: takes away the guests, networks, pools and
    volumes that are not its own, and has its guest run as it did at first."""
    import libvirt

    test = None
    for dom in conn.listAllDomains():
        if dom.name() == "test" and _is_as_at_first(dom):
            test = dom
        else:
            _take_away(dom, lambda dom: dom.undefineFlags(1 | 2))  # its saved memory, its snapshots
    for network in conn.listAllNetworks():
        if network.name() != "default":
            _take_away(network)
    for pool in conn.listAllStoragePools():
        if pool.name() != "default-pool":
            _take_away(pool)
        elif pool.isActive():
            for volume in pool.listAllVolumes():
                volume.delete()
    test = test or conn.defineXML(_test_at_first())
    if not test.isActive():
        test.create()
    elif test.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
        test.resume()


def _take_away(one, undefine=lambda one: one.undefine()):
    persistent = one.isPersistent()
    if one.isActive():
        one.destroy()
    if persistent:
        undefine(one)


def _is_as_at_first(dom):
    """Whether it is defined so, runs with that memory and these vCPUs where it runs, and has no
    snapshot."""
    first = ElementTree.fromstring(_test_at_first())
    size = [int(first.findtext(word)) for word in ("memory", "currentMemory", "vcpu")]
    if dom.snapshotNum():
        return False
    text = dom.XMLDesc(2).strip()  # as it is defined
    return text == _test_at_first() and (not dom.isActive() or dom.info()[1:4] == size)
