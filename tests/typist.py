"""A program on a pseudo-terminal, with a simulated user."""

import contextlib
import os
import pty
import select
import subprocess
import termios
import time

from tests.lab.process import die_with_parent


class Typist:
    """argv: of the program; how: more of subprocess.Popen. ``seen``: all that it has shown."""

    def __init__(self, argv, **how):
        self.ours, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.theirs)
        self.process = subprocess.Popen(
            argv, stdin=self.theirs, stdout=self.theirs, stderr=subprocess.PIPE,
            start_new_session=True, preexec_fn=die_with_parent, **how,  # noqa: PLW1509
        )  # fmt: skip
        self.seen = b""

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.process.kill()
        self.process.communicate()
        for one in (self.ours, self.theirs):
            with contextlib.suppress(OSError):
                os.close(one)

    def type(self, words):
        os.write(self.ours, words)

    def until(self, words, timeout_s=300, again=b""):
        """Reads until these words are seen. again: what is typed each two seconds meanwhile."""
        end, typed = time.monotonic() + timeout_s, time.monotonic()
        while words not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.ours], [], [], 0.2)[0]:
                self.seen += os.read(self.ours, 4096)
            elif self.process.poll() is not None:
                raise AssertionError((self.seen, self.process.stderr.read()))
            if again and time.monotonic() > typed + 2:
                self.type(again)
                typed = time.monotonic()
        return self.seen

    def attached(self):
        """Waits until a console is there."""
        self.until(b"stty rows")
        return self

    def finish(self, timeout_s=600):
        """Its exit code; all that it has shown is seen, and its terminal is as it was."""
        end = time.monotonic() + timeout_s
        while self.process.poll() is None or select.select([self.ours], [], [], 0.2)[0]:
            assert time.monotonic() < end, self.seen
            if select.select([self.ours], [], [], 0.2)[0]:
                self.seen += os.read(self.ours, 4096)
        assert termios.tcgetattr(self.theirs) == self.before
        return self.process.returncode
