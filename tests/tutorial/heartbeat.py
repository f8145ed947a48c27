"""A sign of life while a step is silent."""

import sys
import threading
import time

# seconds between two lines if the output is no terminal
LOG_S = 30


def duration(seconds):
    """A duration in minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Heartbeat:
    """Shows ``what`` and how long it has lasted: on a terminal in one line that is replaced each
    second and removed at the end; in a log, a line every 30 s."""

    def __init__(self, what, stream=None):
        self.stream = stream or sys.stdout
        self._what, self._began = what, time.monotonic()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    @property
    def what(self):
        return self._what

    @what.setter
    def what(self, text):
        self._what, self._began = text, time.monotonic()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self.stop()

    def stop(self):
        """Remove the line; the caller's output follows."""
        self._ended.set()
        self._thread.join()
        self._erase()

    def line(self, text):
        """Print a line that stays."""
        with self._lock:
            self._erase()
            print(text, file=self.stream, flush=True)

    def _beat(self):
        while not self._ended.wait(1 if self.stream.isatty() else LOG_S):
            with self._lock:
                text = f"… {self.what}: {duration(time.monotonic() - self._began)}"
                self._erase()
                end = "" if self.stream.isatty() else "\n"
                print(text, end=end, file=self.stream, flush=True)

    def _erase(self):
        if self.stream.isatty():
            print("\r\033[K", end="", file=self.stream, flush=True)
