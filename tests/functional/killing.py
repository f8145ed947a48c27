"""kill -9 of a verb at each line of the library that it passes, on a libvirtd of our own.

A scenario is a class with ``prepare`` (the state before), ``act`` (the verb), ``after`` (the verb
again, and what must hold then). Each is called in a process of its own, which opens libvirt by
itself: what ``act`` has begun is there when it is killed, as on a hypervisor.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LIBRARY = REPOSITORY / "_utils"
# so many lines of each verb; SLOW=1 takes all, KILLED_LINES says another number
FEW = int(os.environ.get("KILLED_LINES") or (0 if os.environ.get("SLOW") else 4))


def apart(function, trace=None):
    """(the exit code of a process that does it and ends, what it returned or how it failed)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        _child(function, trace, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, json.loads(text) if text else None


def _child(function, trace, writer):
    code = 0
    try:
        if trace:
            trace.writer = writer
            sys.settrace(trace)
        found = function()
        sys.settrace(None)
        os.write(writer, json.dumps(trace.passed if trace else found).encode())
    except BaseException:
        sys.settrace(None)
        code = 1
        os.write(writer, json.dumps(traceback.format_exc()[-1500:]).encode())
    os._exit(code)


class Trace:
    """Counts the lines of these files of the library; at the one wanted the process is killed.

    names: of the functions whose lines count; None: of all in the files."""

    def __init__(self, files, at=None, names=None):
        self.files = {str(LIBRARY / "saltvirt" / file) for file in files}
        self.at = at
        self.names = names
        self.passed = 0
        self.writer = None

    def __call__(self, frame, event, _arg):
        code = frame.f_code
        if code.co_filename not in self.files or code.co_name not in (self.names or [code.co_name]):
            return None
        if event == "line":
            self.passed += 1
            if self.passed == self.at:
                if self.writer is not None:
                    place = f"{code.co_filename}:{frame.f_lineno}"
                    os.write(self.writer, json.dumps(place).encode())
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def _chosen(count, few):
    if not few or count <= few:
        return range(1, count + 1)
    return sorted({1 + int((n + 0.5) * count / few) for n in range(few)})


def each_line(scenario, few):
    """What went wrong, as texts, and how many lines were tried."""
    wrong = []

    def done(function, where):
        code, said = apart(function)
        if code:
            wrong.append(f"{where}: {said}")
        return not code

    def counted():
        code, count = apart(scenario.act, Trace(scenario.FILES))
        assert code == 0, count
        return count

    assert done(scenario.prepare, "prepare"), wrong
    lines = _chosen(counted(), few)
    done(scenario.after, "without a kill")
    for line in () if wrong else lines:
        assert done(scenario.prepare, "prepare"), wrong
        code, place = apart(scenario.act, Trace(scenario.FILES, line))
        if code != -signal.SIGKILL:
            wrong.append(f"line {line}: ended with {code}: {place}")
            continue
        done(scenario.after, place)
    return {"wrong": wrong, "lines": len(lines)}


def run(scenario, libvirtd, folder):
    """Asserts that nothing goes wrong at any of these lines. scenario: a class."""
    argv = [sys.executable, "-m", __name__, scenario.__module__, scenario.__name__]
    argv += [libvirtd.uri, str(folder)]
    env = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{LIBRARY}"}
    done = subprocess.run(
        argv, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == [], "\n".join(found["wrong"][:3])
    assert found["lines"] >= 4


def main(module, name, uri, folder):
    scenario = getattr(importlib.import_module(module), name)(uri, Path(folder))
    print(json.dumps(each_line(scenario, FEW)))


if __name__ == "__main__":
    main(*sys.argv[1:])
