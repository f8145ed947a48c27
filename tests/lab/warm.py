"""``salt`` and ``salt-run`` of a machine by a process in it that has imported Salt already: each
call is a copy of that process, which then does what the command does. Half of a short command's
time is its imports, and tests call hundreds of them.
"""

import contextlib
import json
import select
import subprocess
import threading
from pathlib import Path

from tests.lab.sh import LabError, refuse_failed

_SCRIPT = Path(__file__).with_name("warm_inside.py")
_LOADS = "import json, sys; exec(json.loads(sys.stdin.readline()))"
# as a shell says of what was killed
KILLED = 137


class Warm:
    """The warm processes of one machine; as many as there are calls at once."""

    def __init__(self, machine):
        """machine: a function that returns it."""
        self._machine, self._idle, self._lock = machine, [], threading.Lock()

    def run(self, argv, timeout_s, check):
        """The CompletedProcess of a command. LabError when it is not done in time, and with check
        when it fails."""
        with self._lock:
            while self._idle and self._idle[-1].poll() is not None:
                _end(self._idle.pop())
            one = self._idle.pop() if self._idle else None
        one = one or self._begun()
        try:
            done = _asked(one, argv, timeout_s)
        except BaseException:
            _end(one)
            raise
        if done.returncode == KILLED:
            _end(one)
        else:
            with self._lock:
                self._idle.append(one)
        if check:
            refuse_failed(argv, done)
        return done

    def close(self):
        """They end."""
        with self._lock:
            for one in self._idle:
                _end(one)
            self._idle.clear()

    def _begun(self):
        one = subprocess.Popen(
            self._machine().argv(["/opt/salt/bin/python", "-c", _LOADS]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        _write(one, _SCRIPT.read_text())
        return one


def _asked(one, argv, timeout_s):
    _write(one, argv)
    if not select.select([one.stdout], [], [], timeout_s)[0]:
        raise LabError(f"{' '.join(argv)} did not end within {timeout_s} s")
    line = one.stdout.readline()
    if not line:  # the machine has lost its power, or somebody killed it
        return subprocess.CompletedProcess(argv, KILLED, "", "")
    said = json.loads(line)
    return subprocess.CompletedProcess(argv, said["code"], said["stdout"], said["stderr"])


def _write(one, data):
    with contextlib.suppress(BrokenPipeError):
        one.stdin.write(json.dumps(data) + "\n")
        one.stdin.flush()


def _end(one):
    with contextlib.suppress(BrokenPipeError):
        one.stdin.close()
    one.stdout.close()
    one.kill()
    one.wait()
