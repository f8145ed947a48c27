"""The cloud of these tests: one for all of them."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

# root collects the one test that runs all others as nobody
_AS_ROOT = "test_as_nobody.py"
_here = {path.name for path in Path(__file__).parent.glob("test_*.py")}
collect_ignore = sorted(_here - {_AS_ROOT} if os.geteuid() == 0 else {_AS_ROOT})


@pytest.fixture(scope="session")
def cloud():
    """A master, two minions, and the libvirt of each; synced with this tree by gitfs."""
    from tests.rootless.cloud import Cloud

    # the paths of sockets must be short
    root = Path(tempfile.mkdtemp(prefix="sv"))
    found = Cloud(root)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(root, ignore_errors=True)
