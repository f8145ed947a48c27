"""Lock the agent's memory, so that it feeds the watchdog even if the swap device hangs."""

from __future__ import annotations

import ctypes
import logging
import os

log = logging.getLogger(__name__)

# Linux: the present memory; later memory, once it is used
_CURRENT, _FUTURE, _ON_FAULT = 1, 2, 4


def lock() -> None:
    """Prevent this process from being swapped out. Log a warning if the kernel refuses that."""
    libc = ctypes.CDLL(None, use_errno=True)
    for flags in (_CURRENT, _FUTURE | _ON_FAULT):
        if libc.mlockall(flags):
            reason = os.strerror(ctypes.get_errno())
            log.warning(
                "cannot lock the agent's memory, so it may hang with the swap device: %s", reason
            )
            return
