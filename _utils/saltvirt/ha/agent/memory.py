"""The agent's memory stays in memory: on a host that swaps to a disk that hangs it feeds on."""

from __future__ import annotations

import ctypes
import logging
import os

log = logging.getLogger(__name__)

# Linux: all that there is now; what comes later, once it is used
_CURRENT, _FUTURE, _ON_FAULT = 1, 2, 4


def lock() -> None:
    """Nothing of this process is swapped out any more. Where the kernel refuses, that is said."""
    libc = ctypes.CDLL(None, use_errno=True)
    for flags in (_CURRENT, _FUTURE | _ON_FAULT):
        if libc.mlockall(flags):
            reason = os.strerror(ctypes.get_errno())
            log.warning("the agent may be swapped out, and then hang with its storage: %s", reason)
            return
