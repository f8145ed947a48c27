"""Time in tests: a clock for one module of the library, and waiting for a condition."""

import time


def until(ready, what, timeout_s=30):
    """What ``ready()`` returns once it is true. Fails, with ``what``, after several times the time:
    others may have the CPU."""
    end = time.monotonic() + 5 * timeout_s
    while True:
        found = ready()
        if found:
            return found
        assert time.monotonic() < end, f"not within {5 * timeout_s} s: {what}"
        time.sleep(0.02)


class Clock:
    """In place of a module's name ``time``, so that nothing else of the process sees it:
    ``monkeypatch.setattr(module, "time", Clock())``. Its seconds go by when the module sleeps.

    now: the second that it is. slept: how long the module has slept each time. Whatever is no time
    of now, such as ``strftime``, is Python's.
    """

    def __init__(self, now=0.0):
        self.now, self.slept = now, []

    def monotonic(self):
        return self.now

    time = __call__ = monotonic

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def __getattr__(self, name):
        return getattr(time, name)
