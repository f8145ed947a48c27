"""A swarm whose master is typed at: ``salt-run`` and ``salt`` themselves, with hosts that are made
up and migrate their guests.

    python -m tests.swarm.typed FOLDER GUESTS

is the process that has it, in namespaces of its own. GUESTS is JSON: host to the names of its
guests. It reads commands, a line of JSON each, and prints a line with their exit code and what they
print.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.lab import paths, process
from tests.swarm.cloud import Swarm

ALONE = ("unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child")
TIMEOUT_S = 60
PROGRAMS = {"salt-run": "salt_run", "salt": "salt_main"}


class Typed:
    """``type(command)``: (exit code, what it prints). guests: host to the names of its guests."""

    def __init__(self, **guests):
        self.ends = contextlib.ExitStack()
        self.root = self.ends.enter_context(process.folder("sw", "/tmp"))
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        argv = [*ALONE, *user, sys.executable, "-m", __name__, self.root, json.dumps(guests)]
        self.process = self.ends.enter_context(
            subprocess.Popen(
                argv, cwd=paths.REPOSITORY, text=True, preexec_fn=process.die_with_parent,  # noqa: PLW1509
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
        )  # fmt: skip

    def type(self, command):
        """(Exit code, what it prints)"""
        print(json.dumps(command), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, f"{command} ended the swarm"
        return json.loads(line)

    def write(self, text):
        """No file of a manual is written: the master is configured."""

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.ends.close()


def main(folder, guests):
    swarm = Swarm(Path(folder), 0, 0, TIMEOUT_S, json.loads(guests))
    try:
        swarm.start()
        for line in sys.stdin:
            program, *words = shlex.split(json.loads(line))
            done = subprocess.run(
                swarm.command(PROGRAMS[program], words), stdin=subprocess.DEVNULL,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            print(json.dumps([done.returncode, done.stdout or done.stderr]), flush=True)
    finally:
        swarm.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
