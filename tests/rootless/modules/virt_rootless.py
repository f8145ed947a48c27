"""Functions of virt that take as long as a test wants, and end as it wants: in the file roots of
these tests' master alone."""

import time

__virtualname__ = "virt"


def __virtual__():
    return __virtualname__


def takes(length):
    """Sleeps. length: seconds."""
    time.sleep(length)
    return True


def breaks(message):
    """Fails as no function should."""
    raise ValueError(message)


def steps(tag, data):
    """Sends an event, as a step of a long function is."""
    return __salt__["event.send"](tag, data)  # noqa: F821 - Salt's loader has it
