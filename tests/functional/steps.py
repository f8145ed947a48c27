"""SIGKILL at each step that writes to a disk, with real processes."""

import os
import signal

CALLS = ("replace", "fsync", "unlink", "mkdir", "fchmod", "rmdir")


class Murder:
    """Kills this process at its n-th step that touches the disk."""

    def __init__(self, at):
        self.left = at
        for name in CALLS:
            setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, function):
        def call(*args, **kwargs):
            self._step()
            result = function(*args, **kwargs)
            self._step()
            return result

        return call

    def _step(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at_every_step(work, check, before=lambda: None, every=None):
    """Runs ``work`` in a process that is killed at its 1st, 2nd, 3rd … step, each time after
    ``before``; ``check`` must hold after each. How many steps there are, or a few more. Without
    SLOW=1 at each third; every: another number."""
    for at in range(1, 2000, every or (1 if os.environ.get("SLOW") else 3)):
        before()
        child = os.fork()
        if child == 0:
            Murder(at)
            try:
                work()
            finally:
                os._exit(0)
        _pid, status = os.waitpid(child, 0)
        check()
        if os.WIFEXITED(status):
            return at
    raise AssertionError("it never ended")
