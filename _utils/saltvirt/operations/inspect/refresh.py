"""Show an answer again and again on the terminal of ``salt-run``."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

import salt.output

from saltvirt import errors
from saltvirt.fleet import requester
from saltvirt.operations.core.result import OUTPUTTER, Answer, with_outputter

MIN_S = 1
_CLEAR = "\x1b[H\x1b[J"


def is_possible(opts: dict[str, Any]) -> bool:
    """Return whether the answer is printed on a terminal, by the outputter of the runner."""
    is_typed = opts.get("__cli") == requester.COMMAND_LINE
    return is_typed and opts.get("output") in (None, OUTPUTTER) and sys.stdout.isatty()


def show(opts: dict[str, Any], interval_s: float, query: Callable[[], Answer]) -> Answer:
    """Print the answer every so many seconds until Ctrl-C. Return the last one. Raises
    InvalidInput, and as ``query`` does."""
    if interval_s < MIN_S:
        raise errors.InvalidInput(f"interval must be at least {MIN_S} second")
    last = query()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            data = with_outputter(dict(last))["data"]
            text = salt.output.string_format(data, OUTPUTTER, opts)
            sys.stdout.write(f"{_CLEAR}{text}\n")
            sys.stdout.flush()
            time.sleep(interval_s)
            last = query()
    sys.stdout.write(_CLEAR)
    return last
