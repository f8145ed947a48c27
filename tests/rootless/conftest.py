"""The cloud of these tests, shared by all of them."""

import os
from pathlib import Path

import pytest

from tests.lab import process

# root collects the one test that runs all others as nobody
_AS_ROOT = "test_as_nobody.py"
_here = {path.name for path in Path(__file__).parent.glob("test_*.py")}
collect_ignore = sorted(_here - {_AS_ROOT} if os.geteuid() == 0 else {_AS_ROOT})


@pytest.fixture(scope="session")
def cloud():
    """A master, two minions, and the libvirt of each; synced with this tree by gitfs."""
    from tests.rootless.cloud import Cloud

    with process.folder("sv") as root:  # the paths of sockets must be short
        found = Cloud(Path(root), os.environ.get("SALTVIRT_WAY") or "sync")
        try:
            found.start()
            yield found
        finally:
            found.stop()
