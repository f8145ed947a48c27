"""A guest agent: Debian's own, as a process of this machine with a folder of its own, and one whose
answers a test chooses."""

import contextlib
import json
import shutil
import socket
import subprocess

import pytest

from saltvirt import errors
from saltvirt.console.host.agent import Agent
from tests.clock import until
from tests.lab import process

PROGRAM = shutil.which("qemu-ga", path="/usr/sbin:/usr/bin:/sbin:/bin")


class Real:
    """``agent``: is asked as the one of a guest. ``said``: all that it was told, as JSON."""

    def __init__(self, *options):
        if not PROGRAM:
            pytest.skip("needs qemu-ga (qemu-guest-agent)")
        self.ends = contextlib.ExitStack()
        folder = self.ends.enter_context(process.folder("ga"))
        path = f"{folder}/s"
        argv = [
            PROGRAM,
            "-m",
            "unix-listen",
            "-p",
            path,
            "-t",
            folder,
            "-f",
            f"{folder}/pid",
            *options,
        ]
        self.process = subprocess.Popen(
            argv,
            stderr=subprocess.DEVNULL,
            preexec_fn=process.die_with_parent,  # noqa: PLW1509
        )
        self.ends.callback(self._stop)
        self.line = self.ends.enter_context(socket.socket(socket.AF_UNIX))
        until(lambda: self._connected(path), "the agent listens")
        self.read = self.line.makefile("r", encoding="utf-8")
        self.said = []
        self.agent = Agent("web1", self.say)

    def _connected(self, path):
        with contextlib.suppress(OSError):
            self.line.connect(path)
            return True

    def _stop(self):
        self.process.kill()
        self.process.wait()

    def say(self, text, timeout_s):
        self.said.append(json.loads(text))
        self.line.settimeout(timeout_s)
        self.line.sendall(f"{text}\n".encode())
        answer = self.read.readline()
        error = json.loads(answer).get("error")
        if error:  # as libvirt tells it
            word = self.said[-1]["execute"]
            raise errors.OperationFailed(
                f"internal error: unable to execute QEMU agent command '{word}': {error['desc']}"
            )
        return answer


@pytest.fixture
def real():
    found = Real()
    yield found
    found.ends.close()


def liar(**answers):
    """An Agent that answers each command by what is given for it: a value, one after the other of a
    list, or an error. ``-`` is ``_`` in their names."""
    told = {key: list(one) if isinstance(one, list) else [one] for key, one in answers.items()}

    def say(text, _timeout_s):
        waiting = told[json.loads(text)["execute"].replace("-", "_").removeprefix("guest_")]
        one = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(one, Exception):
            raise one
        return one if isinstance(one, str) else json.dumps({"return": one})

    return Agent("web1", say)
