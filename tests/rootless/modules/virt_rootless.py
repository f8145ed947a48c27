"""Functions of virt that take as long as a test wants, and end as it wants: in the file roots of
these tests' master alone."""

import sys
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


def costs(fun):
    """Calls a function as a master does. Returns the modules of the library that the job found in
    memory and those that it imported, and the modules that Salt has loaded for it."""
    held = _library()
    __salt__["virt.answer"](fun, {}, __pub_jid="1")  # noqa: F821
    loaded = sorted(__salt__.value().loaded_modules)  # noqa: F821
    return {"held": sorted(held), "imported": sorted(_library() - held), "loaded": loaded}


def _library():
    return {name for name in sys.modules if name.startswith("saltvirt.")}
