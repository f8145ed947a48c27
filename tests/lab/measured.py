"""Which lines Salt runs in the machines of a lab: `make coverage` asks for it.

SALTVIRT_LAB_COVERAGE names two folders outside, ``TOOL:DATA``: coverage.py, and where each process
of a machine writes what it ran when it ends. One that is killed has told nothing.
"""

import os

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
sigterm = True
data_file = /var/lib/coverage/data
include = /var/cache/salt/*/extmods/*
disable_warnings = no-data-collected,module-not-measured
"""


def prepare(machine):
    """Have the machine measure, if that is asked for; before it boots."""
    if not os.environ.get(WANTED):
        return
    machine.write("/etc/coverage.conf", CONFIG)
    for folder in machine.root.glob("opt/salt/lib/python3*/site-packages"):
        machine.write(f"{folder.relative_to(machine.root)}/measured.pth", START)


def binds():
    """(outside, inside) of the folders that a machine needs for it."""
    outside = os.environ.get(WANTED)
    return list(zip(outside.split(":"), INSIDE, strict=True)) if outside else []
