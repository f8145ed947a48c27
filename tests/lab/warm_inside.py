"""The process of warm.py, in a machine: a command is a line of JSON, a list of words; what became
of it is one, too.

What a command imported beyond this process is imported here, before the next one. ``pings`` is no
command of Salt's: it waits until minions answer, so many seconds at most.
"""

import contextlib
import gc
import importlib
import json
import os
import sys
import time

import salt.client
import salt.scripts

for module in ("salt.cli.run", "salt.cli.salt", "salt.runner", "salt.minion"):
    importlib.import_module(module)


def pings():
    """A ``salt`` takes ten seconds to believe in a silent minion; the master may be starting."""
    end, wanted = time.monotonic() + float(sys.argv[1]), set(sys.argv[2:])
    quick = {"tgt_type": "list", "timeout": 2, "gather_job_timeout": 1}
    while wanted:  # each time with more patience: on a busy machine no minion may be so quick
        if time.monotonic() > end:
            sys.exit(1)
        try:
            client = salt.client.LocalClient("/etc/salt/master")
            answers = client.cmd(sorted(wanted), "test.ping", **quick)
        except Exception:
            time.sleep(0.2)
        else:
            wanted -= {minion for minion, answer in answers.items() if answer is True}
            quick["timeout"] = min(30, quick["timeout"] + 1)


MAINS = {"salt": salt.scripts.salt_main, "salt-run": salt.scripts.salt_run, "pings": pings}


def become(argv, out, err):
    """This copy is the command from now on."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, out, err)):
        os.dup2(file, number)
    with contextlib.suppress(ImportError):
        import setproctitle

        setproctitle.setproctitle(" ".join([sys.executable, f"/usr/bin/{argv[0]}", *argv[1:]]))
    sys.argv = [f"/usr/bin/{argv[0]}", *argv[1:]]


def imported():
    """What is imported of Salt and what comes with it; what Salt loads by itself is not."""
    at, not_by_name = os.path.realpath(sys.prefix), ("salt.loaded", "saltvirt")
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if os.path.realpath(path).startswith(at) and not name.startswith(not_by_name):
            yield name


def called(argv, names):
    """The copy: runs the command, and writes down what was imported."""
    try:
        MAINS[argv[0]]()
    finally:
        with contextlib.suppress(BaseException):
            os.write(names, json.dumps(sorted(imported())).encode())


def content(file):
    """What is in a file."""
    os.lseek(file, 0, os.SEEK_SET)
    with open(os.dup(file), "rb") as opened:
        return opened.read().decode(errors="replace")


def learn(names):
    """Imports what the command did."""
    with contextlib.suppress(ValueError):
        for name in set(json.loads(content(names))) - set(sys.modules):
            with contextlib.suppress(BaseException):
                importlib.import_module(name)


for line in sys.stdin:
    words = json.loads(line)
    files = [os.memfd_create(name) for name in ("out", "err", "names")]
    gc.freeze()
    child = os.fork()
    if child == 0:
        become(words, *files[:2])
        called(words, files[2])
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    learn(files[2])
    code = os.waitstatus_to_exitcode(status)
    told = {"code": code, "stdout": content(files[0]), "stderr": content(files[1])}
    for one in files:
        os.close(one)
    print(json.dumps(told), flush=True)
