"""A test of the page leaves neither a thread nor an open socket."""

import contextlib
import gc
import os
import threading

import pytest

from tests.clock import until

# of host.connection: one for the life of a process
EVENTS = "libvirt-events"


def _threads():
    return {one for one in threading.enumerate() if one.name != EVENTS}


def _sockets():
    """The open sockets and event polls of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # that of the listing
            continue
        if target.startswith(("socket:", "anon_inode:[eventpoll]")):
            found.add((name, target))
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left_in_the_process():
    gc.collect()
    threads, sockets = _threads(), _sockets()
    yield

    def left():
        gc.collect()
        return _threads() - threads, _sockets() - sockets

    nothing = set(), set()
    with contextlib.suppress(AssertionError):
        until(lambda: left() == nothing, "its threads and sockets end", 5)
    assert left() == nothing, "left by the test"
