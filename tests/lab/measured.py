"""Which lines run in the machines of a lab, and as nobody: `make coverage` asks for it.

SALTVIRT_LAB_COVERAGE names two folders outside, ``TOOL:DATA``: coverage.py, and where each process
writes what it ran when it ends. One that is killed has told nothing.
"""

import os
import shutil

WANTED = "SALTVIRT_LAB_COVERAGE"
INSIDE = ("/opt/coverage", "/var/lib/coverage")
# Salt's Python reads it at its start
START = (
    'import os, sys; sys.path.append("/opt/coverage"); '
    'os.environ["COVERAGE_PROCESS_START"] = "/etc/coverage.conf"; '
    "import coverage; coverage.process_startup()\n"
)
CONFIG = """[run]
parallel = True
concurrency = multiprocessing,thread
patch = _exit
sigterm = True
data_file = {data}
include = {include}
omit = */utils/saltvirt/__init__.py
disable_warnings = no-data-collected,module-not-measured
"""
# where Salt keeps what it has synced, in a machine
SYNCED = "/var/cache/salt/*/extmods"
# the folder beside it where bundle.py unpacks the library
UNPACKED = "saltvirt-library"
# where programs of ours lie, each with the part of the library that it needs
PROGRAMS = "/run/salt-virt"
# the same below a home, and the tree there
AT_HOME = "extmods"
TREE = "tree"


def prepare(machine):
    """Have the machine measure, if that is asked for; before it boots."""
    if not os.environ.get(WANTED):
        return
    config = CONFIG.format(data="/var/lib/coverage/data", include=f"{SYNCED}/*,{PROGRAMS}/*")
    machine.write("/etc/coverage.conf", config)
    for folder in machine.root.glob("opt/salt/lib/python3*/site-packages"):
        machine.write(f"{folder.relative_to(machine.root)}/measured.pth", START)


def binds():
    """(outside, inside) of the folders that a machine needs for it."""
    outside = os.environ.get(WANTED)
    return list(zip(outside.split(":"), INSIDE, strict=True)) if outside else []


def at_home(home, env):
    """The environment of a user's processes, who has a copy of the tree in ``home/tree`` and may
    write nowhere else."""
    wanted = env.get(WANTED)
    if not wanted:
        return env
    config, data = home / "coverage.conf", home / "coverage"
    data.mkdir()
    include = f"{home}/**/{AT_HOME}/*,{home}/{TREE}/_*/*"
    config.write_text(CONFIG.format(data=data / "data", include=include), encoding="utf-8")
    tool = wanted.partition(":")[0]
    return {**env, "PYTHONPATH": tool, "COVERAGE_PROCESS_START": str(config)}


def take_home(home, env):
    """Bring what was measured there to where all of it is."""
    if env.get(WANTED):
        for path in (home / "coverage").iterdir():
            shutil.copy(path, env[WANTED].partition(":")[2])
