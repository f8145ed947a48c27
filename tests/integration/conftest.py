"""The fixtures of the lab, and the logs of its machines when a test fails."""

import contextlib
import time

import pytest

from tests.integration.applied import applied  # noqa: F401 - a fixture
from tests.integration.hv import hv  # noqa: F401 - a fixture
from tests.lab.fixtures import (  # noqa: F401 - fixtures
    bare_lab,
    empty_lab,
    fresh_lab,
    ha_lab,
    lab,
    mixed_lab,
    power_lab,
    shared_lab,
)
from tests.lab.sh import LabError

LOGGED = (
    *("journalctl", "--no-pager", "-q", "-o", "short-iso", "-n", "25"),
    *("-u", "salt-master", "-u", "salt-minion", "-u", "libvirtd"),
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add what each machine's daemons logged since the test began to the report of a failure."""
    report = yield
    if report.failed and call.when == "call":
        since = f"--since=@{int(time.time() - call.duration) - 1}"
        for cloud in {id(c): c for c in item.funcargs.values() if hasattr(c, "machine")}.values():
            for name in cloud.names():
                with contextlib.suppress(LabError):  # it is off, or hangs
                    text = cloud.exec(name, [*LOGGED, since], check=False).stdout
                    report.sections.append((f"{name} logged", text))
    return report
