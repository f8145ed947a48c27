"""The module ``virt`` as Salt's own loader makes it, on libvirt's test driver."""

import functools
import gc
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import machine

REPOSITORY = Path(__file__).resolve().parents[2]
EMPTY = "test://" + str(Path(__file__).with_name("empty-node.xml"))


def load(uri, context=None, **virt):
    """The loaded execution modules, with ``virt:connection:uri`` and more of ``virt`` set.

    context: a dictionary; the events that were sent are in its ``events``.
    """
    pytest.importorskip("libvirt")
    salt_config = pytest.importorskip("salt.config")
    import salt.loader

    opts = salt_config.minion_config(None)
    opts["module_dirs"] = [str(REPOSITORY / "_modules"), str(Path(__file__).parent / "modules")]
    opts["virt"] = {"connection": {"uri": uri}, **virt}
    opts["grains"] = {"id": "hv1", "kernel": "Linux", "virtual": "physical"}
    return salt.loader.minion_mods(opts, context={} if context is None else context)


def load_with_folders(tmp_path, **virt):
    """The modules on ``test:///default``, with folders of their own for images and locks, and with
    room: its host has 3 GiB and a running guest of 8."""
    (tmp_path / "images").mkdir()
    return load(
        "test:///default",
        images=str(tmp_path / "images"),
        lock=str(tmp_path / "lock"),
        placement={"reserved_memory_kib": 0, "memory_ratio": 10, "reserved_disk_bytes": 0},
        **virt,
    )


WATCH = machine.Watch()


@pytest.fixture(autouse=True)
def _nothing_is_written_to_the_machine():
    with WATCH as watch:
        yield
    assert watch.written == [], "written to the machine's own folders: see tests/machine.py"


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_on_the_machine():
    before = machine.made()
    yield
    assert machine.made() <= before, "left in the machine's own folder: see tests/machine.py"


@pytest.fixture(scope="module")
def virt():
    """Execution modules on ``test:///default``: one running domain, ``test``."""
    # its host has 3 GiB and a guest of 8
    return load("test:///default", overcommit=True)


@pytest.fixture
def empty():
    """Execution modules on a host without any domain, network or pool."""
    return load(EMPTY)


@functools.cache
def _test_at_first():
    """The definition of the driver's own guest, by a process that has changed nothing of it."""
    argv = ["virsh", "-c", "test:///default", "dumpxml", "--inactive", "test"]
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


@pytest.fixture
def conn():
    """Raw libvirt on the same ``test:///default``, which lives as long as this is open."""
    libvirt = pytest.importorskip("libvirt")
    gc.collect()  # a traceback can hold the last test's host: it lives until the last object goes
    raw = libvirt.open("test:///default")
    only_test(raw)
    yield raw
    raw.close()
