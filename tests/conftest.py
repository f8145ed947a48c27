"""Slow tests run only on request: ``make test SLOW=1``. Skipped tests are counted."""

import gc
import os

import pytest

from tests import machine
from tests.lab import skips


class Failures:
    """Says of each failure at once which test it is and how it ended: a run of everything is
    long, and one that is stopped half-way prints no summary."""

    def __init__(self, terminal):
        self.terminal = terminal

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.terminal.write_line(f"\nfailed in {report.when}: {report.nodeid}", red=True)
            self.terminal.write_line(report.longreprtext[-600:])


# allocations between two collections of the youngest objects: with Python's 700, a tenth of the CPU
# time of the unit tests is garbage collection
GC_THRESHOLD = 20_000


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    gc.disable()  # until the tests are collected: what that allocates stays
    remove = machine.apart()
    if remove:
        config.add_cleanup(remove)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(terminal), "failures-at-once")


# these begin first, so that at the end of all tests no worker waits for a long file of another
LONGEST = (
    "tests/integration/test_tutorial.py", "tests/rootless/test_as_nobody.py",
    "tests/functional/ha/test_ha_scenarios.py",
)  # fmt: skip


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    if os.environ.get("SLOW"):
        return
    left_out = {}
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: SLOW=1 runs it"))
            left_out.setdefault(item.nodeid.partition("[")[0], []).append(item)
    # of many cases one is reported as skipped: thousands of reports take seconds
    others = [item for cases in left_out.values() for item in cases[1:]]
    if others:
        config.hook.pytest_deselected(items=others)
        apart = set(others)
        items[:] = [item for item in items if item not in apart]


def pytest_collection_finish():
    """What is there now stays to the end. A test that collects garbage need not look there: in a
    run of everything that was nine tenths of its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()


def _skipped(config):
    """The line that counts what was skipped, and the reasons that are not allowed; a worker of
    xdist knows neither."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    found = reporter.stats.get("skipped", ()) if reporter else ()
    return skips.counted([skips.reason(report) for report in found])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """A run of everything fails when a test was left out for want of something."""
    if os.environ.get(skips.STRICT) and not hasattr(session.config, "workerinput"):
        _, wrong = _skipped(session.config)
        if wrong:
            failed = session.exitstatus == pytest.ExitCode.TESTS_FAILED
            session.exitstatus = skips.BESIDE_FAILURES if failed else pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    line, wrong = _skipped(config)
    terminalreporter.write_line(line)
    if wrong and os.environ.get(skips.STRICT):
        told = "\n".join(f"  {why}" for why in sorted(wrong))
        terminalreporter.write_line(
            f"{told}\nmay not be skipped: tests/allowed-skips.txt", red=True
        )
