"""The module ``virt`` as Salt's own loader makes it, on libvirt's test driver."""

import gc
from pathlib import Path

import pytest

from tests import driver, machine

REPOSITORY = Path(__file__).resolve().parents[2]
EMPTY = "test://" + str(Path(__file__).with_name("empty-node.xml"))


def load(uri, context=None, minion=None, host="hv1", **virt):
    """The loaded execution modules, with ``virt:connection:uri`` and more of ``virt`` set.

    context: a dictionary; the events that were sent are in its ``events``. minion: more of the
    configuration. host: the grain ``id``.
    """
    pytest.importorskip("libvirt")
    salt_config = pytest.importorskip("salt.config")
    import salt.loader

    opts = {**salt_config.minion_config(None), **(minion or {})}
    opts["module_dirs"] = [str(REPOSITORY / "_modules"), str(Path(__file__).parent / "modules")]
    opts["virt"] = {"connection": {"uri": uri}, **virt}
    opts["grains"] = {"id": host, "kernel": "Linux", "virtual": "physical"}
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


@pytest.fixture
def conn():
    """Raw libvirt on the same ``test:///default``, which lives as long as this is open."""
    libvirt = pytest.importorskip("libvirt")
    gc.collect()  # a traceback can hold the last test's host: it lives until the last object goes
    raw = libvirt.open(driver.URI)
    driver.only_test(raw)
    yield raw
    raw.close()
