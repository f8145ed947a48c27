"""A unit test leaves the process as it was: threads, environment, working directory. Its files are
not flushed to the disk, because no power is cut."""

import os
import threading

import pytest

# a thread of the process, which libvirt's binding needs once: saltvirt.host.connection
OF_PROCESS = {"libvirt-events"}
# seconds that a thread has to end after its test
GRACE_S = 5
_STATE, _FSYNC = pytest.StashKey(), os.fsync


def _state():
    # PYTEST_CURRENT_TEST has the phase of the test
    return {**os.environ, "PYTEST_CURRENT_TEST": ""}, os.getcwd()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[_STATE] = {*threading.enumerate()}, _state()
    os.fsync = os.fstat  # a file that is closed is refused all the same


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    try:
        result = yield
    finally:
        os.fsync = _FSYNC
    threads, state = item.stash[_STATE]
    new = {*threading.enumerate()} - threads
    for thread in new:
        if thread.name not in OF_PROCESS:
            thread.join(GRACE_S)
    alive = {thread.name for thread in new if thread.is_alive()} - OF_PROCESS
    assert not alive, f"the test leaves threads: {alive}"
    assert _state() == state, "the test changes the environment or the working directory"
    return result
