"""A Terminal beside a private libvirtd: in its mounts, network and processes, so that what a host
keeps, serves and runs has the places that it has on a hypervisor.

    python -m tests.functional.docs.inside URI FOLDER SETTINGS

is the process that is there. It reads commands, a line of JSON each, and prints a line with their
exit code and what they print. `sh SCRIPT` is run by a shell. SETTINGS is JSON: `master`, what is
added to the master's ``virt``, and `minion`, the same of the host's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.functional.backing import PATH


class Inside:
    """``type(command)``: as a Terminal's. daemon: a Daemon. root: an empty folder."""

    def __init__(self, daemon, root, master=None, minion=None):
        self.root, self.uri = root, daemon.uri
        settings = json.dumps({"master": master or {}, "minion": minion or {}})
        argv = [*daemon.inside, sys.executable, "-m", __name__, daemon.uri, str(root), settings]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATH)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(argv, env=env, **pipes)

    def type(self, command):
        """(Exit code, what it prints)"""
        print(json.dumps(command), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, f"{command} ended the terminal"
        code, printed = json.loads(line)
        assert code is not None, f"{command}\n{printed}"
        return code, printed

    def image(self, *names):
        """Serve disk images, with nothing to boot."""
        for name in names or ("debian.qcow2",):
            self.type(f"image {name}")

    def write(self, text):
        """Write a file of a manual."""
        self.type(f"write {text}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def _typed(terminal, command, shown):
    program, _, rest = command.partition(" ")
    if program in ("image", "write"):
        getattr(terminal, program)(rest)
        return 0, ""
    if program == "sh":
        done = subprocess.run(["bash", "-c", rest], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    shown.clear()
    code, printed = terminal.type(command)
    return code, "\n".join([*shown, printed])


def main(uri, folder, settings):
    import traceback

    import pytest

    from saltvirt.fleet.progress import ProgressDisplay
    from tests.functional.docs import terminal

    given, out, shown = json.loads(settings), sys.stdout, []
    sys.stdout = sys.stderr
    ProgressDisplay._fire = lambda _self, text, **_how: shown.append(text)
    ProgressDisplay.update = lambda *_progress: None
    terminal.VIRT.update(given["minion"])
    found = terminal.Terminal({"hv1": uri}, Path(folder), pytest.MonkeyPatch())
    found.fleet.opts["virt"].update(given["master"])
    for line in sys.stdin:
        try:
            said = _typed(found, json.loads(line), shown)
        except BaseException:
            said = None, traceback.format_exc()
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
